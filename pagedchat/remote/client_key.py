"""The number by which a server knows this user's terminals, made once and kept in a file that nobody else reads.

Only with it can a terminal have what another has left at a server.
"""

from contextlib import suppress
from pathlib import Path

from pagedchat.private_files import make_folder, write_file

_LEAST, _MOST = 20, 100
"""Characters of a key that somebody made for this."""


def client_key(path: Path) -> str:
    """The key in the file; a new one where there is none. Where none can be kept it holds for this run."""
    with suppress(OSError, ValueError):
        key = path.read_text(encoding="ascii").strip()
        if _LEAST <= len(key) <= _MOST and key.isprintable():
            return key
    import secrets  # noqa: PLC0415 - once for each user

    key = secrets.token_urlsafe(24)
    with suppress(OSError):
        make_folder(path.parent)
        write_file(path, f"{key}\n".encode())
    return key

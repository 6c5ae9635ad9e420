"""What the program remembers from run to run by itself: the theme that was chosen last.

The file is a convenience: whatever goes wrong with it is ignored.
"""

import json
from contextlib import suppress
from pathlib import Path

from pagedchat.private_files import make_folder, write_file

_MOST_BYTES = 4096


def remembered_theme(path: Path) -> str | None:
    """The theme that was chosen last; None if none was."""
    with suppress(OSError, ValueError, RecursionError):
        with path.open("rb") as file:
            held = json.loads(file.read(_MOST_BYTES))
        theme = held.get("theme") if isinstance(held, dict) else None
        return theme if isinstance(theme, str) else None
    return None


def remember_theme(path: Path, theme: str) -> None:
    """Keep it; an old file is replaced as a whole."""
    with suppress(OSError):
        make_folder(path.parent)
        fresh = path.with_suffix(".tmp")
        write_file(fresh, (json.dumps({"theme": theme}) + "\n").encode())
        fresh.replace(path)

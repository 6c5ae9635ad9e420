"""A server's certificate and its key, looked at before anything is loaded, so that what is wrong is said."""

import ssl
from pathlib import Path

from pagedchat.bounds import check_text
from pagedchat.errors import InvalidValueError

_MISMATCH = "KEY_VALUES_MISMATCH"


def check_certificate(certfile: str, keyfile: str) -> None:
    """Whether a server can speak TLS with these files.

    Args:
        certfile: PEM, the server's own certificate first; empty: no TLS.
        keyfile: PEM; empty: the key is in `certfile`.

    Raises:
        InvalidValueError: a file that cannot be read, or is not what it must be.
    """
    if not certfile:
        if keyfile:
            raise InvalidValueError("--ssl-keyfile is given, but no --ssl-certfile.", "Give both, or neither.")
        return
    given = {"--ssl-certfile": certfile} | ({"--ssl-keyfile": keyfile} if keyfile else {})
    for name, path in given.items():
        _check_readable(name, check_text(name, path))
    _load(certfile, keyfile)


def _check_readable(name: str, path: str) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise InvalidValueError(f"{name} {path} cannot be read: {reason}.", "Give a file in PEM.") from None


def _load(certfile: str, keyfile: str) -> None:
    """As the server will do it; a key with a passphrase would have it ask for that on the terminal."""
    asked = False

    def nobody_is_asked() -> str:
        nonlocal asked
        asked = True
        return ""

    place = keyfile or certfile
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certfile, keyfile or None, nobody_is_asked)
    except (ssl.SSLError, ValueError) as error:
        if asked:
            message, hint = (
                f"The key in {place} has a passphrase.",
                "Write it without: openssl pkey -in KEY -out FILE",
            )
        elif getattr(error, "reason", "") == _MISMATCH:
            message, hint = (
                f"The key in {place} is not that of the certificate.",
                "Give the two that belong together.",
            )
        else:
            message = f"--ssl-certfile {certfile} and its key are no certificate in PEM."
            hint = "Give the certificate, and the key in it or as --ssl-keyfile."
        raise InvalidValueError(message, hint) from None

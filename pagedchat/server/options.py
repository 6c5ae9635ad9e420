"""How a server is reached and what it grants: checked once, when they are made. Knows no engine."""

import re
import socket
from dataclasses import dataclass
from ipaddress import ip_address

from pagedchat.bounds import Number, Whole, check_text, shown
from pagedchat.errors import InvalidValueError
from pagedchat.server.certificate import check_certificate

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8000
MAX_PORT = 65_535
MIB = 1024**2
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What a user may set of a server.

    Raises:
        InvalidValueError: a value outside what it may be, or an address that others reach without an API key.
    """

    host: str = DEFAULT_HOST
    """A name or an address of this machine."""
    port: int = DEFAULT_PORT
    """0: any that is free."""
    ssl_certfile: str = ""
    """Of its certificate, in PEM; empty: it speaks HTTP without TLS."""
    ssl_keyfile: str = ""
    """Of the certificate's key, in PEM; empty: that is in `ssl_certfile`."""
    api_key: str = ""
    """That every client has to have; empty: none."""
    names: tuple[str, ...] = ()
    """By which requests may ask for the model; by default as it was asked for."""
    max_queued: int = 256
    """Sequences that may wait, beside those that one step takes."""
    max_body: int = 16 * MIB
    """Bytes of a request."""
    shutdown_seconds: float = 30.0
    """For running requests, once the server is asked to end."""
    keep_detached: float = 3600.0
    """Seconds for which chats of a terminal that is gone are kept; 0: not at all."""
    origins: tuple[str, ...] = ()
    """Of pages in browsers that may ask."""
    log_requests: bool = False
    tool_format: str = "auto"
    thoughts: bool = True
    """Whether thoughts are told apart from replies."""

    def __post_init__(self) -> None:
        check_text("--host", self.host)
        Whole(0, MAX_PORT).check("--port", self.port)
        Whole(0, 2**20).check("--max-queued", self.max_queued)
        Whole(1024, 2**32).check("--max-body", self.max_body)
        Number(0, 86_400).check("--shutdown-seconds", self.shutdown_seconds)
        Number(0, 30 * 86_400).check("--keep-detached", self.keep_detached)
        for name in self.names:
            check_text("--served-model-name", name)
        for origin in self.origins:
            _check_origin(origin)
        _check_key(self.api_key)
        check_certificate(self.ssl_certfile, self.ssl_keyfile)
        if not self.api_key and not self.is_local:
            raise InvalidValueError(
                f"--host {shown(self.host)} can be reached by other machines, and there is no API key.",
                "Give one with --api-key-file FILE or in PAGEDCHAT_API_KEY, or leave out --host.",
            )

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it. A name is none unless all that it stands for is local."""
        return all(ip_address(address).is_loopback for address in self._addresses())

    def _addresses(self) -> list[str]:
        try:
            found = socket.getaddrinfo(self.host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise InvalidValueError(
                f"--host is {shown(self.host)}, which is no address of this machine.", "Give 127.0.0.1, or 0.0.0.0."
            ) from None
        return [str(each[4][0]).partition("%")[0] for each in found]


def _check_origin(origin: str) -> None:
    if origin != "*" and not _ORIGIN.fullmatch(origin):
        raise InvalidValueError(
            f"--cors-origin is {shown(origin)}.", "It must be like https://example.org, or * for all."
        )


def _check_key(key: str) -> None:
    """What a header can carry. The key itself is never said."""
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise InvalidValueError(
            "The API key has characters that no header can carry.",
            "Take letters, digits and signs, without spaces.",
        )

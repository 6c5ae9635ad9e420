"""Where a server is, as people write it: `localhost`, `127.0.0.1:8000`, `https://host/prefix`."""

import ipaddress
from urllib.parse import urlsplit

import msgspec

from pagedchat.bounds import shown
from pagedchat.errors import InvalidValueError
from pagedchat.service.attaching import PATH

DEFAULT_PORT = 8000
"""That of `pagedchat serve`."""
DEFAULT_URL = f"http://127.0.0.1:{DEFAULT_PORT}"
_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
_MOST = 2000


class Address(msgspec.Struct, frozen=True):
    """A server."""

    where: str
    """Host and port, for people."""
    websocket: str
    """The URL at which terminals attach."""
    is_here: bool
    """Whether that is this machine."""

    @property
    def is_tls(self) -> bool:
        """Whether nobody on the way can read it."""
        return self.websocket.startswith("wss:")

    def http(self, path: str) -> str:
        """The URL of another page of the server's, as `/stats`."""
        return f"http{self.websocket.removeprefix('ws').removesuffix(PATH)}{path}"


def address_of(name: str, url: str) -> Address:
    """What is meant by a URL, or by a part of one.

    Args:
        name: the option, for complaints.
        url: with a scheme or without, with a port or without.

    Raises:
        InvalidValueError: it is none.
    """
    text = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port, parts = "", None, urlsplit("")
    unusual = parts.query or parts.fragment or parts.username or parts.password
    printable = url.isprintable() and " " not in url and len(url) <= _MOST
    if parts.scheme not in _SCHEMES or not host or unusual or not printable or port == 0:
        raise InvalidValueError(f"{name} is {shown(url)}.", f"It must be a URL such as {DEFAULT_URL}.")
    scheme = _SCHEMES[parts.scheme]
    number = port or (443 if scheme == "wss" else DEFAULT_PORT if "://" not in url else 80)
    bracketed = f"[{host}]" if ":" in host else host
    path = parts.path.rstrip("/").removesuffix("/v1").removesuffix(PATH)
    return Address(f"{bracketed}:{number}", f"{scheme}://{bracketed}:{number}{path}{PATH}", _is_here(host))


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

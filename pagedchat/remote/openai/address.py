"""Which server: its name, its URL, the model there, and in which variable its key is. Connects to nothing.

A server is written `NAME` or `URL`, and where one of its models is meant, `#MODEL` behind it. Keys are never
written there: an address is shown on the screen, stands in the history and in the list of processes.
"""

import os
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

import msgspec

from pagedchat.bounds import is_unicode, shown
from pagedchat.errors import InvalidValueError, PagedChatError

MOST_CHARACTERS = 2000
DEFAULT_TIMEOUT = 120.0
LONGEST_TIMEOUT = 86_400.0
_LOOPBACK = ("localhost", "127.", "::1")
_EXAMPLE = "Give one like http://localhost:8000/v1, with #MODEL behind it where it serves several."


class ServerAddress(msgspec.Struct, frozen=True):
    """One OpenAI-compatible server."""

    name: str
    """What people call it: of the settings file, or its host and port."""
    url: str
    """Base of its API, without a slash at the end: `http://localhost:8000/v1`."""
    model: str = ""
    """Which of its models; empty: the only one, or the one that is chosen once it has told them."""
    key_env: str = ""
    """The variable that has its key; empty: it is sent none."""
    timeout: float = DEFAULT_TIMEOUT
    """Seconds without a word after which a reply is given up."""
    kind: str = ""
    """What it runs, as `kinds.py` calls it, where it does not say so itself."""
    is_named: bool = False
    """Whether `name` stands in the settings file, and leads back to it."""

    @property
    def text(self) -> str:
        """By which it can be asked for again: `lab#org/model`."""
        place = self.name if self.is_named else self.url
        return f"{place}#{self.model}" if self.model else place

    @property
    def figures_url(self) -> str:
        """Where it may tell what it does: `/metrics`, beside its API."""
        return f"{self.url.removesuffix('/v1')}/metrics"

    def with_model(self, model: str) -> "ServerAddress":
        """The same server, this model of it."""
        return msgspec.structs.replace(self, model=model)

    def key(self, environ: Mapping[str, str] | None = None) -> str:
        """What the variable has; empty where none is named.

        Raises:
            PagedChatError: the variable has nothing, or nothing that can be sent.
        """
        if not self.key_env:
            return ""
        key = (os.environ if environ is None else environ).get(self.key_env, "").strip()
        if not key:
            raise PagedChatError(
                f"The key of {self.name} is to be in {self.key_env}, and that variable has nothing in it.",
                f"Set {self.key_env} in the environment and start again.",
            )
        if not (key.isascii() and key.isprintable()):
            raise PagedChatError(
                f"What {self.key_env} has cannot be a key: keys are printable ASCII.", "Copy it again."
            )
        return key

    @property
    def sends_key_in_the_clear(self) -> bool:
        """Whether others on the way to the server can read its key."""
        parts = urlsplit(self.url)
        return bool(self.key_env) and parts.scheme == "http" and not (parts.hostname or "").startswith(_LOOPBACK)


def server_address(text: str, named: Mapping[str, ServerAddress], key_env: str = "") -> ServerAddress:
    """Read `NAME` or `URL`, with or without `#MODEL`.

    Args:
        text: what was written.
        named: the servers of the settings file.
        key_env: the variable with the key, for one that is no name.

    Raises:
        InvalidValueError: it is neither.
    """
    place, _, model = text.strip().partition("#")
    if not is_unicode(model) or len(model) > MOST_CHARACTERS:
        raise InvalidValueError(f"--server names the model {shown(model)}, which is no name.", _EXAMPLE)
    if place in named:
        server = named[place]
        return server.with_model(model) if model else server
    if named and "." not in place and ":" not in place and place != "localhost":
        raise InvalidValueError(
            f"There is no server called {shown(place)}; there are {', '.join(map(_name, named))}.",
            "Name one in [servers.NAME] of the settings file, or give its URL.",
        )
    url = checked_url("--server", place)
    return ServerAddress(urlsplit(url).netloc, url, model, key_env)


def _name(name: str) -> str:
    return shown(name)


def checked_url(option: str, text: str) -> str:
    """The URL as it is used: with a scheme and a path, without a slash at the end.

    Raises:
        InvalidValueError: it is none, or has in it what must not be seen.
    """
    full = text if "://" in text else f"http://{text}"
    parts = _split(full)
    if parts is None or not text.isprintable() or " " in text or len(text) > MOST_CHARACTERS:
        raise InvalidValueError(f"{option} is {shown(text)}, which is no URL.", _EXAMPLE)
    if parts.scheme not in ("http", "https"):
        raise InvalidValueError(f"{option} is {shown(text)}: servers speak http or https.", _EXAMPLE)
    if "@" in text or parts.query:
        raise InvalidValueError(
            f"{option} has a name, a key or a query in it, which would be seen on the screen and kept.",
            "Put the key into a variable and name that with --api-key-env or api_key_env.",
        )
    path = parts.path.rstrip("/") or "/v1"
    return f"{parts.scheme}://{parts.netloc}{path}"


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        return parts if parts.hostname and parts.port != 0 else None
    except ValueError:  # a port that is no number, a broken IPv6 address
        return None

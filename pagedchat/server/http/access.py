"""Who may ask at all: by an API key, or without one only programs of this machine, not pages in a browser on it.

Stands before every route, those over WebSockets included. Knows headers, no endpoint.
"""

import hmac
import re
from collections.abc import Collection
from functools import lru_cache
from ipaddress import ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from pagedchat.server.http.errors import ApiError

_OPEN_PATHS = ("/health",)
"""That whoever watches over the server may ask without a key."""
_HOST = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([\w.-]+))(?::\d{1,5})?", re.ASCII)
_KNOWN_HOSTS = 64
"""That need not be looked at again."""
_POLICY_VIOLATION = 1008
"""Of a WebSocket that is closed."""


class Access:
    """Middleware.

    Args:
        app: what stands behind it.
        api_key: empty lets in without one.
        origins: of pages that may ask; "*" for all.
    """

    def __init__(self, app: ASGIApp, api_key: str = "", origins: Collection[str] = ()) -> None:
        self._app = app
        self._key = api_key.encode()
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass it on, or refuse it."""
        error = self._refused(scope) if scope["type"] in ("http", "websocket") else None
        if error is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http" or "websocket.http.response" in scope.get("extensions", {}):
            await error.response()(scope, receive, send)
        else:
            await receive()
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": error.message[:120]})

    def _refused(self, scope: Scope) -> ApiError | None:
        if self._key:
            return None if scope["path"] in _OPEN_PATHS else self._check_key(_header(scope, b"authorization") or "")
        host = _header(scope, b"host") or ""
        return self._check_host(host) or self._check_origin(_header(scope, b"origin"), host)

    def _check_key(self, authorization: str) -> ApiError | None:
        scheme, _, token = authorization.partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else ""
        if hmac.compare_digest(given.encode("latin-1", "replace"), self._key):
            return None
        what = "There is no API key" if not given else "The API key is not the one of this server"
        return ApiError(
            401, f"{what}. Send it as Authorization: Bearer KEY.", headers={"WWW-Authenticate": "Bearer"}
        )

    def _check_host(self, host: str) -> ApiError | None:
        """A name that some page had made to point to this machine is none of its own (DNS rebinding)."""
        if _is_own_name(host):
            return None
        return ApiError(
            403, "Without an API key only this machine is served, by the names localhost and 127.0.0.1. "
            "Start the server with --api-key-file FILE to serve others.",
        )  # fmt: skip

    def _check_origin(self, origin: str | None, host: str) -> ApiError | None:
        """Whatever a page asks for has its origin; a browser would send it without asking us first."""
        if origin is None or "*" in self._origins or origin in self._origins:
            return None
        if origin.partition("://")[2] == host:
            return None
        return ApiError(403, "Pages of this origin are not served. Start the server with --cors-origin ORIGIN.")


def _header(scope: Scope, name: bytes) -> str | None:
    """The first of this name; ASGI has all names in small letters."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)


@lru_cache(_KNOWN_HOSTS)
def _is_own_name(header: str) -> bool:
    """Whether a host, with a port or without, can only be this machine."""
    found = _HOST.fullmatch(header)
    host = (found[1] or found[2]).lower() if found else ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False

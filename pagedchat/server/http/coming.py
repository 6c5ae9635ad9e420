"""Requests that have been read and that nobody works on yet: a server that reads many at once knows of all of them
before it has passed on the first one.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

_COMING = "pagedchat.coming"
"""Among the extensions of an ASGI scope: what stands for the request here."""


class Coming:
    """How many there are; see `service.gathering` for what an engine makes of it."""

    def __init__(self) -> None:
        self._read: set[object] = set()

    def __call__(self) -> int:
        """How many."""
        return len(self._read)

    def add(self, scope: Scope) -> None:
        """One was read, whose turn is sure to come."""
        token = object()
        scope.setdefault("extensions", {})[_COMING] = token
        self._read.add(token)

    def counted(self, app: ASGIApp) -> ASGIApp:
        """An app that begins with one of them when it is called."""

        async def begin(scope: Scope, receive: Receive, send: Send) -> None:
            self._read.discard(scope.get("extensions", {}).get(_COMING))
            await app(scope, receive, send)

        return begin

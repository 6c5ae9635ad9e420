"""Endpoints that are asked often, past the router: it would try one path after the other, and catch errors twice.

Stands behind all other middleware. Knows paths; what the endpoints do is theirs.
"""

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from pagedchat.server.http.errors import ApiError

CLIENT_GONE = 499
"""The status of answers that nobody reads."""
Endpoint = Callable[[Request], Awaitable[Response]]


class Direct:
    """Middleware.

    Args:
        app: what stands behind it: everything else, other methods of the same paths among it.
        endpoints: path -> what answers a `POST` there.
    """

    def __init__(self, app: ASGIApp, endpoints: Mapping[str, Endpoint]) -> None:
        self._app = app
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer it, or pass it on."""
        posted = scope["type"] == "http" and scope["method"] == "POST"
        endpoint = self._endpoints.get(scope["path"]) if posted else None
        if endpoint is None:
            await self._app(scope, receive, send)
            return
        try:
            response = await endpoint(Request(scope, receive, send))
        except ApiError as error:
            response = error.response()
        except ClientDisconnect:
            response = Response(status_code=CLIENT_GONE)
        await response(scope, receive, send)

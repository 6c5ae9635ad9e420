"""How the server stands: `/health`, `/metrics`, `/stats`, `/version`, `/openapi.json`."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pagedchat import __version__
from pagedchat.server.http.endpoints.common import ready, served_by
from pagedchat.server.http.errors import not_ready
from pagedchat.server.http.schemas.common import Version

_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


async def health(request: Request) -> Response:
    """Nothing, with status 200, where a request would be let in; 503 and why where not."""
    if ready(request).admission.closing:
        raise not_ready("The server is about to end.")
    return Response()


async def metrics(request: Request) -> Response:
    """All figures for Prometheus."""
    return Response(served_by(request).metrics(), media_type=_EXPOSITION)


async def stats(request: Request) -> Response:
    """What `pagedchat stats` prints."""
    return Response(msgspec.json.encode(await served_by(request).stats()), media_type="application/json")


async def version(_request: Request) -> Response:
    """Of the program."""
    return Response(msgspec.json.encode(Version(version=__version__)), media_type="application/json")


async def openapi(request: Request) -> Response:
    """This API, as OpenAPI describes one."""
    from pagedchat.server.http.openapi import described  # noqa: PLC0415 - for who asks

    return Response(described(), media_type="application/json")

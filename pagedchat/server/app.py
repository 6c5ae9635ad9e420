"""The ASGI app: every route, and what stands before them. Starts no engine and opens no socket."""

from collections.abc import Collection, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from pagedchat.server.http.access import Access
from pagedchat.server.http.direct import CLIENT_GONE, Direct, Endpoint
from pagedchat.server.http.endpoints.chat import chat_completions
from pagedchat.server.http.endpoints.completions import completions
from pagedchat.server.http.endpoints.models import model, models
from pagedchat.server.http.endpoints.responses import responses
from pagedchat.server.http.endpoints.standing import health, metrics, openapi, stats, version
from pagedchat.server.http.endpoints.tokens import detokenize, tokenize
from pagedchat.server.http.errors import ApiError, on_http_error, on_unexpected
from pagedchat.server.http.request_log import RequestLog
from pagedchat.server.served import Served


def build_app(
    served: Served,
    *,
    api_key: str = "",
    origins: Collection[str] = (),
    log_requests: bool = False,
    more_routes: Sequence[BaseRoute] = (),
) -> Starlette:
    """The app.

    Args:
        served: the engine, and how it is offered.
        api_key: that everybody has to have; empty for nobody.
        origins: of pages in browsers that may ask.
        log_requests: whether each request is written to standard error.
        more_routes: of others, as of terminals that attach; the same guard stands before them.
    """
    stack = [Middleware(RequestLog)] if log_requests else []
    if origins:
        stack.append(
            Middleware(CORSMiddleware, allow_origins=list(origins), allow_methods=["*"], allow_headers=["*"])
        )
    stack += [Middleware(Access, api_key=api_key, origins=origins), Middleware(Direct, endpoints=_GENERATING)]
    app = Starlette(
        routes=[*_routes(), *more_routes],
        middleware=stack,
        exception_handlers={
            ApiError: _on_api_error,
            HTTPException: on_http_error,
            ClientDisconnect: _on_client_gone,
            Exception: on_unexpected,
        },
    )
    app.state.served = served
    return app


_GENERATING: dict[str, Endpoint] = {
    "/v1/completions": completions,
    "/v1/chat/completions": chat_completions,
    "/v1/responses": responses,
}


def _routes() -> list[BaseRoute]:
    return [
        Route("/v1/models", models),
        Route("/v1/models/{model:path}", model),
        *(Route(path, endpoint, methods=["POST"]) for path, endpoint in _GENERATING.items()),
        Route("/tokenize", tokenize, methods=["POST"]),
        Route("/detokenize", detokenize, methods=["POST"]),
        Route("/health", health),
        Route("/metrics", metrics),
        Route("/stats", stats),
        Route("/version", version),
        Route("/openapi.json", openapi),
    ]


async def _on_api_error(_request: Request, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    return error.response()


async def _on_client_gone(_request: Request, _error: Exception) -> Response:
    """Nobody reads it."""
    return Response(status_code=CLIENT_GONE)

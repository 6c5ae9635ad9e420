"""Errors as OpenAI's clients read them: `{"error": {"message", "type", "param", "code"}}` and a status.

Knows how errors of the engine become such, and which parameter they name; no endpoint.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pagedchat.errors import EngineDeadError, EngineStateError, InvalidValueError, PagedChatError, RequestError

RETRY_SECONDS = 2
"""After which it is worth while to ask again, where a server cannot serve now."""
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
}
_WORDS = re.compile(r"[a-z]\w*(?:\.\w+)*")
_TOO_LONG = re.compile(r"prompt has \d")
_SPOKEN_OF = {"stop strings": "stop", "Stop token": "stop_token_ids", "telling it of tools": "tools"}
"""Words of the engine's sentences that speak of a field without its name."""


class ErrorBody(msgspec.Struct, frozen=True):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    """The field of the request that is at fault, as `messages[0].content`."""
    code: str | int | None


class ErrorReply(msgspec.Struct, frozen=True):
    """The body of every reply with a status of 400 or more, and of an event that ends a stream early."""

    error: ErrorBody


@dataclass(eq=False)
class ApiError(Exception):
    """A request that is not served, or not to its end.

    Args:
        status: of HTTP.
        message: in sentences, with what to do next.
        param: the field of the request that is at fault.
        code: a word for programs.
    """

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def reply(self) -> ErrorReply:
        """The body."""
        kind = _TYPES.get(self.status, "server_error")
        return ErrorReply(ErrorBody(self.message, kind, self.param, self.code or _code(self.status)))

    @property
    def body(self) -> bytes:
        """The same, as JSON."""
        return msgspec.json.encode(self.reply)

    @property
    def event(self) -> bytes:
        """The same, as an event of a stream."""
        return b"data: " + self.body + b"\n\n"

    def response(self) -> Response:
        """The same, as a whole reply."""
        return Response(self.body, self.status, dict(self.headers), "application/json")


def not_ready(message: str) -> ApiError:
    """Nobody can be served now, and in some seconds somebody may."""
    return ApiError(503, message, code="engine_not_ready", headers={"Retry-After": str(RETRY_SECONDS)})


@dataclass(frozen=True, slots=True)
class Naming:
    """How errors of the engine name what a request of some kind has."""

    fields: Collection[str]
    """All that it may have."""
    prompt: str
    """The one that holds what is to be answered: an error that names no other is laid to it."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """What the engine calls otherwise than this request did."""

    def reworded(self, message: str) -> str:
        """A sentence of the engine's, with this request's names in it."""
        return _WORDS.sub(lambda word: self.renamed.get(word[0].partition(".")[0], word[0]), message)

    def of(self, message: str) -> str | None:
        """The field that a sentence like `temperature is -1.` speaks of."""
        words: list[str] = _WORDS.findall(message)
        for place, word in enumerate(words):
            name, dot, rest = word.partition(".")
            if name in self.renamed:
                return self.renamed[name]
            if name in self.fields and ("_" in name or message.startswith(word) or (dot and place == 0)):
                return name + dot + rest
        return next((name for said, name in _SPOKEN_OF.items() if said in message), None)


def from_engine(error: PagedChatError, naming: Naming) -> ApiError:
    """What the engine says of a request, as an error of this API."""
    message = naming.reworded(str(error))
    if isinstance(error, EngineStateError | EngineDeadError):  # its hint is for who runs the server
        return not_ready(f"{error.message} Ask again in a moment.")
    named = naming.of(error.message)
    if isinstance(error, InvalidValueError):
        return ApiError(400, message, named or naming.prompt, "invalid_value")
    if isinstance(error, RequestError):
        too_long = named is None and _TOO_LONG.search(message) is not None
        return ApiError(400, message, named or naming.prompt, "context_length_exceeded" if too_long else None)
    return ApiError(500, message)


def unexpected() -> ApiError:
    """A defect of our own; what it was stands in the log alone."""
    return ApiError(500, "This request met an error of pagedchat's own; the server's log has it.")


async def on_http_error(request: Request, error: Exception) -> Response:
    """Starlette's own: no such path, no such method."""
    status: int = getattr(error, "status_code", 500)
    headers: dict[str, Any] = getattr(error, "headers", None) or {}
    words = {
        404: f"There is nothing at {request.url.path}; /openapi.json says what there is.",
        405: f"{request.url.path} does not take {request.method}.",
    }
    message = words.get(status, str(getattr(error, "detail", error)))
    return ApiError(status, message, headers=headers).response()


async def on_unexpected(_request: Request, _error: Exception) -> Response:
    """Whatever nobody foresaw."""
    return unexpected().response()


def _code(status: int) -> str | None:
    return {401: "invalid_api_key", 404: "not_found", 405: "method_not_allowed", 429: "rate_limit_exceeded"}.get(
        status
    )

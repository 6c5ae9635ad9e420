"""This API as OpenAPI 3.1 describes one, made of the very types that bodies are read with."""

from functools import cache
from typing import Any, NamedTuple

import msgspec

from pagedchat import __version__
from pagedchat.server.http.errors import ErrorReply
from pagedchat.server.http.schemas.chat import ChatBody, ChatChunk, ChatCompletion
from pagedchat.server.http.schemas.common import ModelCard, ModelList, Version
from pagedchat.server.http.schemas.completions import Completion, CompletionBody
from pagedchat.server.http.schemas.responses import ResponseObject, ResponsesBody
from pagedchat.server.http.schemas.tokens import DetokenizeBody, Detokenized, TokenizeBody, Tokens

Schema = dict[str, Any]


class _Operation(NamedTuple):
    """What one endpoint takes and tells."""

    path: str
    summary: str
    body: type[msgspec.Struct] | None = None
    reply: type[msgspec.Struct] | None = None
    event: type[msgspec.Struct] | None = None
    """Of a stream."""

    @property
    def types(self) -> list[type[msgspec.Struct]]:
        """All that it names."""
        return [each for each in (self.body, self.reply, self.event) if each is not None]


_OPERATIONS = (
    _Operation("/v1/models", "The model that is served.", reply=ModelList),
    _Operation("/v1/models/{model}", "One model.", reply=ModelCard),
    _Operation("/v1/completions", "Text gone on with.", CompletionBody, Completion, Completion),
    _Operation("/v1/chat/completions", "A conversation answered.", ChatBody, ChatCompletion, ChatChunk),
    _Operation("/v1/responses", "A conversation answered, in items.", ResponsesBody, ResponseObject),
    _Operation("/tokenize", "A text or a conversation as tokens.", TokenizeBody, Tokens),
    _Operation("/detokenize", "Tokens as a text.", DetokenizeBody, Detokenized),
    _Operation("/health", "Whether requests are taken."),
    _Operation("/metrics", "Figures for Prometheus."),
    _Operation("/stats", "What `pagedchat stats` prints."),
    _Operation("/version", "Of the program.", reply=Version),
)


@cache
def described() -> bytes:
    """All of it, as JSON."""
    types: list[type[msgspec.Struct]] = [
        ErrorReply,
        *dict.fromkeys(each for operation in _OPERATIONS for each in operation.types),
    ]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    named: dict[type, Schema] = dict(zip(types, schemas, strict=True))
    page = {
        "openapi": "3.1.0",
        "info": {"title": "pagedchat", "version": __version__},
        "paths": {operation.path: _path(operation, named) for operation in _OPERATIONS},
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
    }
    return msgspec.json.encode(page)


def _path(operation: _Operation, named: dict[type, Schema]) -> Schema:
    content = {} if operation.reply is None else {"application/json": {"schema": named[operation.reply]}}
    if operation.event is not None:
        content["text/event-stream"] = {"schema": named[operation.event]}
    error = {"description": "What is wrong.", "content": {"application/json": {"schema": named[ErrorReply]}}}
    told: Schema = {
        "summary": operation.summary,
        "responses": {"200": {"description": "As asked.", "content": content}, "default": error},
    }
    if "{model}" in operation.path:
        told["parameters"] = [{"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}]
    if operation.body is None:
        return {"get": told}
    body = {"required": True, "content": {"application/json": {"schema": named[operation.body]}}}
    return {"post": {**told, "requestBody": body}}

"""`/tokenize` and `/detokenize`, as vLLM has them."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pagedchat.errors import PagedChatError
from pagedchat.server.http.endpoints.common import check_model, ready
from pagedchat.server.http.errors import ApiError, from_engine
from pagedchat.server.http.messages import check_entries, check_length, template_messages
from pagedchat.server.http.reading import BodyReader
from pagedchat.server.http.schemas.tokens import DetokenizeBody, Detokenized, TokenizeBody, Tokens
from pagedchat.server.served import Served

MAX_TOKEN_TEXTS = 4096
"""Tokens whose texts are told one by one."""
MOST_TOKENS = 1 << 17
"""That are told as text, whatever a model's context."""
_TOKENIZE = BodyReader(TokenizeBody, "prompt")
_DETOKENIZE = BodyReader(DetokenizeBody, "tokens")
_encode = msgspec.json.Encoder().encode


async def tokenize(request: Request) -> Response:
    """A text, or a conversation, as tokens."""
    served = ready(request)
    body = await _TOKENIZE.read(request, served.max_body)
    info = check_model(served, body.model)
    try:
        tokens = await _tokens(served, body, info.max_model_len)
        texts = await _texts(served, tokens) if body.return_token_strs else None
    except PagedChatError as error:
        raise from_engine(error, _TOKENIZE.naming) from None
    told = Tokens(count=len(tokens), max_model_len=info.max_model_len, tokens=tokens, token_strs=texts)
    return Response(_encode(told), media_type="application/json")


async def detokenize(request: Request) -> Response:
    """Tokens as a text."""
    served = ready(request)
    body = await _DETOKENIZE.read(request, served.max_body)
    info = check_model(served, body.model)
    check_entries(len(body.tokens), max(info.max_model_len, MOST_TOKENS), "tokens")
    wrong = next((token for token in body.tokens if not 0 <= token < info.vocab_size), None)
    if wrong is not None:
        raise ApiError(400, f"The model has {info.vocab_size} tokens, and none with the id {wrong}.", "tokens")
    try:
        text = await served.engine.detokenize(body.tokens)
    except PagedChatError as error:
        raise from_engine(error, _DETOKENIZE.naming) from None
    return Response(_encode(Detokenized(prompt=text)), media_type="application/json")


async def _tokens(served: Served, body: TokenizeBody, max_model_len: int) -> list[int]:
    if (body.prompt is None) == (body.messages is None):
        raise ApiError(400, "Give either prompt or messages.", "prompt")
    if body.messages is not None:
        messages = template_messages(body.messages, max_model_len)
        return await served.engine.tokenize(messages)
    text = body.prompt or ""
    check_length(len(text), max_model_len, "prompt")
    return await served.engine.tokenize(text, add_special_tokens=body.add_special_tokens is not False)


async def _texts(served: Served, tokens: list[int]) -> list[str]:
    if len(tokens) > MAX_TOKEN_TEXTS:
        message = f"The texts of {len(tokens):,} tokens are too many; at most {MAX_TOKEN_TEXTS:,} are told."
        raise ApiError(400, message, "return_token_strs")
    return [await served.engine.detokenize([token]) for token in tokens]

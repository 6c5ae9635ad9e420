"""`/tokenize` and `/detokenize`, as vLLM has them."""

from pagedchat.server.http.schemas.chat import ChatMessage
from pagedchat.server.http.schemas.common import Body, Told


class TokenizeBody(Body, frozen=True, kw_only=True):
    """A text, or a conversation, whose tokens are wanted."""

    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    add_special_tokens: bool | None = None
    """That the tokenizer puts around every text: true for a prompt; a template has its own."""
    return_token_strs: bool | None = None


class Tokens(Told, frozen=True, kw_only=True, omit_defaults=True):
    """Of a text."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeBody(Body, frozen=True, kw_only=True):
    """Tokens whose text is wanted."""

    tokens: list[int]
    model: str | None = None


class Detokenized(Told, frozen=True, kw_only=True):
    """The text of tokens."""

    prompt: str

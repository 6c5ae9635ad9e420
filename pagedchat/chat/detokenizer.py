"""Tokens to text, in pieces of any length. Knows tokenizers; no sequences, no stop strings.

A token is not a run of characters: an emoji may take four of them, and a word's first token carries its space only
in the company of the token before. So text comes out once it cannot change any more. How the tokens are cut into
pieces makes no difference to the text, so that whoever shows it may take them as seldom as a screen draws.

Most tokenizers write the bytes of their tokens one after the other: `ByteDetokenizer` does that itself, many tokens
at once. For all others `StreamDetokenizer` asks the tokenizer, token by token.
"""

import copy
from codecs import utf_8_decode
from collections.abc import Sequence
from typing import Protocol, Self

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from pagedchat.chat.token_texts import ByteText, byte_text

CONTEXT_LENGTH = 8
"""Ids before a text that are enough to decode it as in the middle of one: longer than any character."""
MAX_PENDING = 32
"""Tokens without text after which no more is expected of them: a tokenizer would look at all of them every time."""
_INCOMPLETE = "\ufffd"


class Detokenizer(Protocol):
    """Text of one growing run of tokens."""

    @property
    def is_inside_character(self) -> bool:
        """Whether bytes are held back that may become a character."""

    def append(self, token_ids: Sequence[int]) -> str:
        """The text that `token_ids` complete; less or nothing while a character is incomplete."""

    def finish(self) -> str:
        """What was held back, incomplete bytes as U+FFFD."""

    def fork(self) -> Self:
        """An independent copy."""


def detokenizer(
    tokenizer: Tokenizer, context_ids: Sequence[int] = (), skip_special_tokens: bool = True
) -> Detokenizer:
    """One for a run of tokens that is about to begin.

    Args:
        tokenizer: of the model.
        context_ids: the tokens before the run; their text is not given out again.
        skip_special_tokens: leave out tokens such as the end of the sequence.
    """
    text = byte_text(tokenizer, skip_special_tokens)
    if text is None:
        return StreamDetokenizer(tokenizer, context_ids, skip_special_tokens)
    context = list(context_ids[-CONTEXT_LENGTH:])
    is_first = text.strips and not tokenizer.decode(context, skip_special_tokens=skip_special_tokens)
    return ByteDetokenizer(text, tokenizer if is_first else None)


def decode_after(tokenizer: Tokenizer, context_ids: Sequence[int], token_ids: Sequence[int]) -> str:
    """All text of `token_ids`, special tokens too, as it reads after `context_ids`."""
    decoding = detokenizer(tokenizer, context_ids, skip_special_tokens=False)
    return decoding.append(token_ids) + decoding.finish()


class ByteDetokenizer:
    """For tokenizers whose texts are the bytes of their tokens.

    Args:
        text: the tokens' bytes.
        first: the tokenizer, where the first word of all is to come: it knows what becomes of the space before it.
    """

    __slots__ = ("_bytes_of", "_errors", "_first", "_held")

    def __init__(self, text: ByteText, first: Tokenizer | None) -> None:
        self._bytes_of, self._errors = text.bytes_of, text.errors
        self._first = first
        self._held = b""
        """The beginning of a character."""

    @property
    def is_inside_character(self) -> bool:
        """See `Detokenizer`."""
        return bool(self._held)

    def append(self, token_ids: Sequence[int]) -> str:
        """See `Detokenizer`."""
        data = self._held + b"".join(map(self._bytes_of, token_ids))
        if self._first is not None and data:
            data = self._begun(self._first, token_ids, data)
        text, length = utf_8_decode(data, self._errors, False)
        self._held = data[length:]
        return text

    def finish(self) -> str:
        """See `Detokenizer`."""
        text, _ = utf_8_decode(self._held, self._errors, True)
        self._held = b""
        return text

    def fork(self) -> Self:
        """See `Detokenizer`."""
        return copy.copy(self)

    def _begun(self, tokenizer: Tokenizer, token_ids: Sequence[int], data: bytes) -> bytes:
        """The first word is written as the tokenizer writes it: with a space before it, or without."""
        self._first = None
        if not data.startswith(b" "):
            return data
        first = next(token_id for token_id in token_ids if self._bytes_of(token_id))
        text: str = tokenizer.decode([first], skip_special_tokens=False)
        return text.encode() + data[len(self._bytes_of(first)) :]


class StreamDetokenizer:
    """For all tokenizers: their own way to read along.

    Args:
        tokenizer, context_ids, skip_special_tokens: as for `detokenizer`.
    """

    def __init__(
        self, tokenizer: Tokenizer, context_ids: Sequence[int] = (), skip_special_tokens: bool = True
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._stream: DecodeStream
        self._context: list[int]
        self._pending: list[int]
        self._restart(self._usable(context_ids))

    @property
    def is_inside_character(self) -> bool:
        """See `Detokenizer`."""
        return bool(self._pending)

    def append(self, token_ids: Sequence[int]) -> str:
        """See `Detokenizer`."""
        return "".join([self._step(token_id) for token_id in token_ids])

    def finish(self) -> str:
        """See `Detokenizer`."""
        before = self._decode(self._context)
        text = self._decode(self._context + self._pending)[len(before) :]
        self._restart(self._usable(self._context + self._pending))
        return text

    def fork(self) -> Self:
        """See `Detokenizer`."""
        twin = copy.copy(self)
        twin._stream = copy.copy(self._stream)
        twin._context, twin._pending = list(self._context), list(self._pending)
        return twin

    def _step(self, token_id: int) -> str:
        self._pending.append(token_id)
        try:
            piece: str | None = self._stream.step(self._tokenizer, token_id)
        except Exception:  # the decoder rewrote text that was out already; begin anew after it
            return self.finish()
        if piece is None:
            return self.finish() if len(self._pending) > MAX_PENDING else ""
        self._context, self._pending = self._pending, []
        return piece

    def _restart(self, context: list[int]) -> None:
        self._context, self._pending = context, []
        self._stream = DecodeStream(ids=context, skip_special_tokens=self._skip_special_tokens)

    def _usable(self, context_ids: Sequence[int]) -> list[int]:
        """DecodeStream would give out a context that ends inside a character; then none is better."""
        context = list(context_ids[-CONTEXT_LENGTH:])
        return [] if self._decode(context).endswith(_INCOMPLETE) else context

    def _decode(self, token_ids: list[int]) -> str:
        text: str = self._tokenizer.decode(token_ids, skip_special_tokens=self._skip_special_tokens)
        return text

"""Token ids -> text, piece by piece. Knows nothing of stop strings or turns.

A token is not a run of characters: an emoji may take four of them, and a word's first token carries its space only
in the company of the token before. So text comes out once it cannot change any more, and the ids that it came from
are kept as the context of the next piece.
"""

import copy
from collections.abc import Sequence

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

CONTEXT_LENGTH = 8
"""Ids before a text that are enough to decode it as in the middle of one: longer than any character."""
_INCOMPLETE = "\ufffd"


class Detokenizer:
    """Text of one growing run of tokens.

    Args:
        context_ids: the tokens before the run; their text is not given out again.
        skip_special_tokens: leave out tokens such as the end of the sequence.
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

    def append(self, token_ids: Sequence[int]) -> str:
        """The text that `token_ids` complete; less or nothing while a character is incomplete."""
        return "".join([self._step(token_id) for token_id in token_ids])

    def finish(self) -> str:
        """What was held back, incomplete bytes as U+FFFD."""
        before = self._decode(self._context)
        text = self._decode(self._context + self._pending)[len(before) :]
        self._restart(self._usable(self._context + self._pending))
        return text

    def fork(self) -> "Detokenizer":
        """An independent copy."""
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
            return ""
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


def decode_after(tokenizer: Tokenizer, context_ids: Sequence[int], token_ids: Sequence[int]) -> str:
    """All text of `token_ids`, special tokens too, as it reads after `context_ids`."""
    detokenizer = Detokenizer(tokenizer, context_ids, skip_special_tokens=False)
    return detokenizer.append(token_ids) + detokenizer.finish()

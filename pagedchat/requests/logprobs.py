"""How likely tokens were, as outputs tell it. Knows sequences and a tokenizer."""

from collections.abc import Callable

from tokenizers import Tokenizer

from pagedchat.engine.sequence import Sequence, TokenLogprobs
from pagedchat.outputs import Logprob, PositionLogprobs

TokenText = Callable[[int], str | None]


def token_texts(tokenizer: Tokenizer | None) -> TokenText:
    """What each token reads as by itself; of each it is asked once."""
    known: dict[int, str | None] = {}

    def text_of(token_id: int) -> str | None:
        if token_id not in known:
            known[token_id] = tokenizer and tokenizer.decode([token_id], skip_special_tokens=False)
        return known[token_id]

    return text_of


class ToldLogprobs:
    """What is told of one request's tokens so far.

    Args:
        sequence: of the request.
        text_of: a token.
    """

    def __init__(self, sequence: Sequence, text_of: TokenText) -> None:
        self._sequence = sequence
        self._text_of = text_of
        self._generated: list[PositionLogprobs] = []
        self._prompt: list[PositionLogprobs | None] = [None]
        self._sum = 0.0

    def generated(self, start: int, end: int) -> tuple[list[PositionLogprobs] | None, float | None]:
        """Of the generated tokens from `start` to before `end`, and the sum of the own ones of all before `end`.
        None where nobody asked. Of what was told once nothing is taken back."""
        if self._sequence.sampling_params.logprobs is None:
            return None, None
        for entry in self._sequence.logprobs[len(self._generated) : end]:
            self._generated.append(_position(entry, self._text_of))
            self._sum += entry.logprobs[0]
        return self._generated[start:], self._sum

    def prompt(self) -> list[PositionLogprobs | None] | None:
        """Of the prompt's tokens, as far as they are computed; of the first one nobody knows. None where nobody
        asked."""
        if self._sequence.sampling_params.prompt_logprobs is None:
            return None
        told = self._prompt
        told.extend(_position(entry, self._text_of) for entry in self._sequence.prompt_logprobs[len(told) - 1 :])
        return told.copy()


def _position(entry: TokenLogprobs, text_of: TokenText) -> PositionLogprobs:
    told = {entry.token_ids[0]: Logprob(entry.logprobs[0], entry.rank, text_of(entry.token_ids[0]))}
    for rank, (token_id, logprob) in enumerate(zip(entry.token_ids[1:], entry.logprobs[1:], strict=True), 1):
        told[token_id] = Logprob(logprob, rank, text_of(token_id))
    return told

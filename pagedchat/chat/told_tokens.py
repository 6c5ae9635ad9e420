"""The tokens of a reply beside its text: which characters each of them has, how likely it was, what else might have
come. Made only where that was asked for. Knows a sequence and a tokenizer; no stop strings, no queue.

A token is bytes, not characters, so a character may belong to several tokens, and a token may have none: one that
ends the reply, or one whose bytes are only a part of a character.
"""

import copy

from tokenizers import Tokenizer

from pagedchat.chat.detokenizer import detokenizer
from pagedchat.chat.token_texts import token_bytes
from pagedchat.engine.sequence import Sequence, TokenLogprobs
from pagedchat.events import ToldToken, packed


class ToldReply:
    """What is told of one reply's tokens.

    Args:
        sequence: was just asked for the reply.
        tokenizer: of the model.
        strip_start: the reply's text begins with its first word, without the white space before it.
    """

    def __init__(self, sequence: Sequence, tokenizer: Tokenizer, *, strip_start: bool) -> None:
        params, prompt = sequence.sampling_params, sequence.token_ids[: sequence.num_prompt_tokens]
        self._sequence = sequence
        self._bytes_of = token_bytes(tokenizer)
        self._decoding = detokenizer(tokenizer, prompt, skip_special_tokens=params.skip_special_tokens)
        self._says_end = params.include_stop_str_in_output
        self._at_start = strip_start
        self._length = 0
        """Characters that are complete."""
        self._told: list[ToldToken] = []
        self._num_taken = 0

    def add(self, token_ids: list[int]) -> None:
        """The reply's next tokens."""
        for token_id in token_ids:
            start, end = self._place_of(token_id)
            told = self._likelihood(len(self._told)) or TokenLogprobs([token_id], [], 0)
            texts = [self._bytes_of(told_id) for told_id in told.token_ids]
            self._told.append(ToldToken(start, end, told.rank, told.token_ids, texts, packed(told.logprobs)))

    def take(self) -> tuple[list[ToldToken], int]:
        """What was not taken yet, and how many of the reply's tokens come before it."""
        first, self._num_taken = self._num_taken, len(self._told)
        return self._told[first:], first

    def tell_again(self) -> None:
        """Nothing was taken yet."""
        self._num_taken = 0

    def fork(self, sequence: Sequence) -> "ToldReply":
        """The same, of a sequence that has the same tokens."""
        twin = copy.copy(self)
        twin._sequence, twin._decoding, twin._told = sequence, self._decoding.fork(), self._told.copy()
        return twin

    def _likelihood(self, index: int) -> TokenLogprobs | None:
        """Of a token of the reply; None of those with which it was to begin."""
        drawn = index - self._sequence.num_begun_tokens
        return self._sequence.logprobs[drawn] if 0 <= drawn < len(self._sequence.logprobs) else None

    def _place_of(self, token_id: int) -> tuple[int, int]:
        """The characters that a token has bytes of."""
        start = self._length
        if token_id in self._sequence.stop_token_ids and not self._says_end:
            return start, start
        text = self._decoding.append([token_id])
        if self._at_start:
            text = text.lstrip()
            self._at_start = not text
        self._length += len(text)
        return start, self._length + self._decoding.is_inside_character

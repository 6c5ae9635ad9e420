"""A reply while it is generated: tokens in, text out, and how it ends. Knows a sequence, no engine and no queue.

This is the one place where a request's tokens become text and its stops are found, for the library and the engine
process alike, in the order in which the text passes: `Detokenizer` makes it, `OutputProcessor` holds back what a
stop string may still take, `Reply` is what has come. Whoever runs the engine does three things after each step:

1. `Reply.take` for every reply that may have got tokens;
2. where that met a stop string (`Reply.stopped`), end the sequence;
3. `Reply.finish` for those of which `endings` tells: a sequence's end is learned from the reports and nowhere else.
"""

import copy
from array import array
from collections.abc import Sequence
from functools import lru_cache

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from pagedchat.engine.sequence import Sequence as EngineSequence
from pagedchat.events import FinishReason, SequenceParked, StepReport

CONTEXT_LENGTH = 8
"""Ids before a text that are enough to decode it as in the middle of one: longer than any character."""
_INCOMPLETE = "\ufffd"


class Detokenizer:
    """Text of one growing run of tokens, piece by piece.

    A token is not a run of characters: an emoji may take four of them, and a word's first token carries its space
    only in the company of the token before. So text comes out once it cannot change any more, and the ids that it
    came from are kept as the context of the next piece.

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


class StopStrings:
    """Finds where a text that comes in pieces holds the first of several strings, reading every character once.

    Of each string it is known, for every beginning of it, which shorter beginning the text may still be in where
    the next character does not fit (Knuth, Morris and Pratt 1977). So time and memory grow with the length of the
    strings and not with its square. What is known of a text so far is *open*: word -> how many of its characters
    the text ends with. Never changed, so replies share it.
    """

    __slots__ = ("_beginning_with", "_fallbacks", "openings")

    def __init__(self, words: Sequence[str]) -> None:
        self._fallbacks = {word: _fallbacks(word) for word in words}
        self._beginning_with: dict[str, list[str]] = {}
        for word in self._fallbacks:
            self._beginning_with.setdefault(word[0], []).append(word)
        self.openings = frozenset(self._beginning_with)
        """The characters with which they begin: a text without them needs no further look while nothing is open."""

    def advance(self, open_words: dict[str, int], character: str) -> dict[str, int]:
        """What is open after one more character; one that is open in full is complete."""
        after = {word: 1 for word in self._beginning_with.get(character, ()) if word not in open_words}
        for word, matched in open_words.items():
            fallback = self._fallbacks[word]
            length = matched
            while length and word[length] != character:
                length = fallback[length - 1]
            if word[length] == character:
                after[word] = length + 1
            elif length:
                after[word] = length
        return after


def _fallbacks(word: str) -> "array[int]":
    """For each beginning of `word`, by its length less one: the longest shorter beginning with which it ends."""
    fallbacks = array("I", [0])
    length = 0
    for character in word[1:]:
        while length and word[length] != character:
            length = fallbacks[length - 1]
        length += word[length] == character
        fallbacks.append(length)
    return fallbacks


@lru_cache(maxsize=16)
def _stop_strings(words: tuple[str, ...]) -> StopStrings:
    """Made once for all replies with the same ones."""
    return StopStrings(words)


class OutputProcessor:
    """Releases text as soon as no stop string can take it back.

    ::

        released text |<- held back ->| not decoded yet
        ..............|  may be the   |  incomplete
                      |  start of a   |  character
                      |  stop string  |

    Args:
        tokenizer: of the model.
        stop: the text ends before whichever of them is complete first (of several at the same place, the longest).
        context_ids: the tokens before the first one.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = (), context_ids: Sequence[int] = ()) -> None:
        self.text = ""
        """Released so far."""
        self.stopped = False
        """A stop string was met; nothing more will be released."""
        self._detokenizer = Detokenizer(tokenizer, context_ids)
        self._stop = _stop_strings(tuple(stop))
        self._open: dict[str, int] = {}
        """Which stop strings the held text may be the start of; the longest start is all of it."""
        self._held = ""

    def append(self, token_ids: Sequence[int]) -> str:
        """Take tokens; the text that they release."""
        if self.stopped:
            return ""
        return self._take(self._detokenizer.append(token_ids))

    def finish(self) -> str:
        """No more tokens will come: release what was held back."""
        if self.stopped:
            return ""
        released = self._take(self._detokenizer.finish())
        return released if self.stopped else released + self._release(len(self._held))

    def fork(self) -> "OutputProcessor":
        """An independent copy that goes on from here."""
        twin = copy.copy(self)
        twin._detokenizer = self._detokenizer.fork()
        return twin

    def _take(self, text: str) -> str:
        if not self._open and self._stop.openings.isdisjoint(text):  # nearly every token
            self.text += text
            return text
        start = self._find_stop(text)
        self._held += text
        if start is None:
            return self._release(len(self._held) - max(self._open.values(), default=0))
        released = self._release(start)
        self.stopped, self._held = True, ""
        return released

    def _find_stop(self, text: str) -> int | None:
        """Where in the held text and `text` after it the stop string begins that is complete first; None if there
        is none yet.

        By the end and not by the start, so that the answer is the same for whatever pieces the text arrives in.
        """
        advance, openings, open_words = self._stop.advance, self._stop.openings, self._open
        for end, character in enumerate(text, len(self._held) + 1):
            if not open_words and character not in openings:
                continue
            open_words = advance(open_words, character)
            complete = [length for word, length in open_words.items() if length == len(word)]
            if complete:
                return end - max(complete)
        self._open = open_words
        return None

    def _release(self, length: int) -> str:
        released, self._held = self._held[:length], self._held[length:]
        self.text += released
        return released


class Reply:
    """What one request has got so far.

    Args:
        sequence: was just asked for the reply: all that it holds is prompt.
        tokenizer: None gives no text, and finds no stop strings.
        stop: the reply ends before whichever of these strings is complete first.
        strip_start: leave out white space before the first word: a base model writes its reply after a colon.
    """

    __slots__ = ("_at_start", "_output", "_strip_start", "finish_reason", "num_read", "sequence", "stopped")

    def __init__(
        self,
        sequence: EngineSequence,
        tokenizer: Tokenizer | None,
        stop: Sequence[str] = (),
        *,
        strip_start: bool = False,
    ) -> None:
        self.sequence = sequence
        self.num_read = len(sequence.token_ids)
        """Tokens of the sequence that were taken, the prompt counted."""
        self.finish_reason: FinishReason | None = None
        """None while it is on its way."""
        self.stopped = False
        """Whether a stop string was met: the sequence is to be ended, if it has not ended by itself."""
        self._output = None if tokenizer is None else OutputProcessor(tokenizer, stop, sequence.token_ids)
        self._strip_start = strip_start
        self._at_start = strip_start
        """Whether all that came yet is to be stripped."""

    @property
    def num_tokens(self) -> int:
        """Tokens generated so far, whether taken or not."""
        sequence = self.sequence
        return len(sequence.token_ids) - sequence.num_prompt_tokens

    @property
    def token_ids(self) -> list[int]:
        """The tokens generated so far; the one that ended the reply is among them."""
        return self.sequence.output_token_ids

    @property
    def text(self) -> str:
        """The text released so far: it cannot change any more."""
        text = "" if self._output is None else self._output.text
        return text.lstrip() if self._strip_start else text

    def take(self) -> str | None:
        """Take what was generated since the last call. Runs for every sequence of a step: it stays lean.

        Returns:
            The text that it releases; empty while that may still change. None where nothing was generated.
        """
        sequence, output = self.sequence, self._output
        new_ids = sequence.token_ids[self.num_read :]
        if not new_ids:
            return None
        self.num_read += len(new_ids)
        if sequence.finish_reason == "stop" and new_ids[-1] in sequence.stop_token_ids:
            new_ids.pop()  # it ends the reply and says nothing
        if output is None:
            return ""
        released = output.append(new_ids)
        self.stopped = output.stopped
        return self._stripped(released) if self._at_start else released

    def finish(self, reason: FinishReason) -> str:
        """Nothing more will be generated, for this reason unless a stop string was met; the text held back.

        After an error nothing more becomes text.
        """
        released = ""
        if self._output is not None and reason != "error":
            released = self._stripped(self._output.finish())
            self.stopped = self._output.stopped
        self.finish_reason = "stop" if self.stopped else reason
        return released

    def fork(self, sequence: EngineSequence) -> "Reply":
        """The same reply, gone on with by a sequence that has the same tokens."""
        twin = copy.copy(self)
        twin.sequence, twin._output = sequence, self._output and self._output.fork()
        return twin

    def _stripped(self, released: str) -> str:
        if self._at_start:
            released = released.lstrip()
            self._at_start = not released
        return released


def endings(report: StepReport) -> list[SequenceParked]:
    """Which sequences ended since the report before, and why, in order.

    One that was asked again since may still be among them. While nobody is parked nobody can have ended, and the
    events, hundreds in some steps, need not be looked through.
    """
    if not report.queues.parked:
        return []
    return [event for event in report.events if type(event) is SequenceParked]

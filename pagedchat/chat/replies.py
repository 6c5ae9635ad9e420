"""A reply while it is generated: tokens in, text out, and how it ends. Knows a sequence, no engine and no queue.

This is the one place where a request's tokens become text and its stops are found, for the library and the engine
process alike. Whoever runs the engine does three things after each step:

1. `Reply.take` for every reply that may have got tokens;
2. where that met a stop string (`Reply.stopped`), end the sequence;
3. `Reply.finish` for those of which `endings` tells: a sequence's end is learned from the reports and nowhere else.
"""

import copy
from collections.abc import Sequence

from tokenizers import Tokenizer

from pagedchat.chat.output_processor import OutputProcessor
from pagedchat.engine.sequence import Sequence as EngineSequence
from pagedchat.events import FinishReason, SequenceParked, StepReport


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
        self.num_read = len(sequence)
        """Tokens of the sequence that were taken, the prompt counted."""
        self.finish_reason: FinishReason | None = None
        """None while it is on its way."""
        self.stopped = False
        """Whether a stop string was met: the sequence is to be ended, if it has not ended by itself."""
        self._output = OutputProcessor(tokenizer, stop, sequence.token_ids)
        self._strip_start = strip_start
        self._at_start = strip_start
        """Whether all that came yet is to be stripped."""

    @property
    def num_tokens(self) -> int:
        """Tokens generated so far, whether taken or not."""
        return len(self.sequence) - self.sequence.num_prompt_tokens

    @property
    def token_ids(self) -> list[int]:
        """The tokens generated so far; the one that ended the reply is among them."""
        return self.sequence.output_token_ids

    @property
    def text(self) -> str:
        """The text released so far: it cannot change any more."""
        return self._output.text.lstrip() if self._strip_start else self._output.text

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
        released = output.append(new_ids)
        self.stopped = output.stopped
        return self._stripped(released) if self._at_start else released

    def finish(self, reason: FinishReason) -> str:
        """Nothing more will be generated, for this reason unless a stop string was met; the text held back."""
        released = self._stripped(self._output.finish())
        self.stopped = self._output.stopped
        self.finish_reason = "stop" if self.stopped else reason
        return released

    def fork(self, sequence: EngineSequence) -> "Reply":
        """The same reply, gone on with by a sequence that has the same tokens."""
        twin = copy.copy(self)
        twin.sequence, twin._output = sequence, self._output.fork()
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

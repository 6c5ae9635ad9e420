"""A reply while it is generated: tokens in, text out, and how it ends. Knows a sequence, no engine and no queue.

This is the one place where a request's tokens become text and its stops are found, for the library and the engine
process alike, in the order in which the text passes: `detokenizer` makes it, `OutputProcessor` holds back what a
stop string may still take, `Reply` is what has come. Text is for eyes and may be taken now and then, many tokens at
once; only what may end the reply is looked at after every step. Whoever runs the engine does three things then:

1. `Reply.take` for every reply that `is_due`, and for any other when its text is wanted;
2. where that met a stop string (`Reply.stopped`), end the sequence;
3. `Reply.finish` for those of which `endings` tells: a sequence's end is learned from the reports and nowhere else.
"""

import copy
from collections.abc import Callable, Sequence

from tokenizers import Tokenizer

from pagedchat.cache_events import FinishReason, SequenceParked
from pagedchat.chat.stop_strings import OutputProcessor
from pagedchat.chat.told_tokens import ToldReply
from pagedchat.engine.sequence import Sequence as EngineSequence
from pagedchat.events import StepReport


class Reply:
    """What one request has got so far.

    Args:
        sequence: was just asked for the reply: all that it holds is prompt, and the tokens with which the reply was
            to begin.
        tokenizer: None gives no text, and finds no stop strings.
        stop: the reply ends before whichever of these strings is complete first.
        strip_start: leave out white space before the first word: a base model writes its reply after a colon.
    """

    __slots__ = (
        "_at_start", "_may_wait", "_num_seen", "_output", "_strip_start", "finish_reason", "num_read", "sequence",
        "stopped", "stopped_at", "told",
    )  # fmt: skip

    def __init__(
        self,
        sequence: EngineSequence,
        tokenizer: Tokenizer | None,
        stop: Sequence[str] = (),
        *,
        strip_start: bool = False,
    ) -> None:
        self.sequence = sequence
        self.num_read = sequence.num_prompt_tokens
        """Tokens of the sequence that were taken, the prompt counted."""
        self._num_seen = self.num_read
        """Likewise, those that `is_due` has looked at."""
        self._may_wait: Callable[[int], bool] | None = None
        """Of a token, whether it may be taken later; None: none may, as the first one."""
        self.finish_reason: FinishReason | None = None
        """None while it is on its way."""
        self.stopped = False
        """Whether a stop string was met: the sequence is to be ended, if it has not ended by itself."""
        self.stopped_at: int | None = None
        """Tokens of the sequence up to the one that completed a stop string. There are more where a step brought
        several: the sequence is to be cut back to as many."""
        params = sequence.sampling_params
        self._output = None
        if tokenizer is not None and params.detokenize:
            self._output = OutputProcessor(
                tokenizer,
                stop,
                sequence.token_ids[: self.num_read],
                skip_special_tokens=params.skip_special_tokens,
                includes_stop=params.include_stop_str_in_output,
            )
        self._strip_start = strip_start
        self._at_start = strip_start
        """Whether all that came yet is to be stripped."""
        self.told: ToldReply | None = None
        """What is to be told of its tokens, where that was asked for."""
        if tokenizer is not None and params.logprobs is not None:
            self.told = ToldReply(sequence, tokenizer, strip_start=strip_start)

    @property
    def num_tokens(self) -> int:
        """Tokens generated so far, whether taken or not."""
        sequence = self.sequence
        return len(sequence.token_ids) - sequence.num_prompt_tokens

    @property
    def num_drawn(self) -> int:
        """Of these, tokens that the model has chosen: not those with which the reply was to begin."""
        return self.num_tokens - self.sequence.num_begun_tokens

    @property
    def token_ids(self) -> list[int]:
        """The tokens generated so far; the one that ended the reply is among them."""
        return self.sequence.output_token_ids

    @property
    def num_taken(self) -> int:
        """Of the tokens generated so far, those that were taken."""
        return self.num_read - self.sequence.num_prompt_tokens

    @property
    def text(self) -> str:
        """The text released so far: it cannot change any more."""
        text = "" if self._output is None else self._output.text
        return text.lstrip() if self._strip_start else text

    @property
    def has_stops(self) -> bool:
        """Whether stop strings were asked for, so that it can be due at any step. Any other is due once: when its
        first token has come."""
        return self._output is not None and self._output.has_stops

    def is_due(self) -> bool:
        """Whether what was generated since the last call has to be taken at once. Runs for every sequence with stop
        strings after every step: it stays lean."""
        token_ids, num_seen = self.sequence.token_ids, self._num_seen
        self._num_seen = len(token_ids)
        if self._num_seen == num_seen:
            return False
        if self._may_wait is None:
            return True
        if self._num_seen == num_seen + 1:
            return not self._may_wait(token_ids[-1])
        return not all(map(self._may_wait, token_ids[num_seen:]))

    def take(self) -> str | None:
        """Take what was generated since the last call.

        Returns:
            The text that it releases; empty while that may still change. None where nothing was generated.
        """
        sequence, output = self.sequence, self._output
        new_ids = sequence.token_ids[self.num_read :]
        if not new_ids:
            return None
        num_free = sequence.sampling_params.min_tokens - (self.num_read - sequence.num_prompt_tokens)
        self.num_read += len(new_ids)
        if self.told is not None:
            self.told.add(new_ids)
        had_end = 0
        is_at_end = sequence.finish_reason == "stop" and new_ids[-1] in sequence.stop_token_ids
        if is_at_end and not sequence.sampling_params.include_stop_str_in_output:
            new_ids.pop()  # it ends the reply and says nothing
            had_end = 1
        if output is None:
            return ""
        released = ""
        if num_free > 0:  # tokens by which no stop string counts yet
            released, new_ids = output.append(new_ids[:num_free], may_stop=False), new_ids[num_free:]
        if output.has_stops and len(new_ids) > 1:
            text, num_used = output.append_until_stop(new_ids)
            released += text
            if output.stopped:
                self.stopped_at = self.num_read - len(new_ids) - had_end + num_used
        else:
            released += output.append(new_ids)
        self.stopped, self._may_wait = output.stopped, output.may_wait
        return self._stripped(released) if self._at_start else released

    @property
    def stop_reason(self) -> int | str | None:
        """Which stop string, or which token of the request's own, ended it; None for anything else."""
        if self.stopped:
            return None if self._output is None else self._output.stop_string
        token_ids = self.token_ids if self.finish_reason == "stop" else []
        by_token = token_ids and token_ids[-1] in self.sequence.sampling_params.stop_token_ids
        return token_ids[-1] if by_token else None

    def finish(self, reason: FinishReason) -> str:
        """Nothing more will be generated, for this reason unless a stop string was met; the text not taken yet.

        After an error nothing more becomes text.
        """
        released = ""
        if self._output is not None and reason != "error":
            released = self.take() or ""
            released += self._stripped(self._output.finish())
            self.stopped = self._output.stopped
        self.finish_reason = "stop" if self.stopped else reason
        return released

    def fork(self, sequence: EngineSequence) -> "Reply":
        """The same reply, gone on with by a sequence that has the same tokens."""
        twin = copy.copy(self)
        twin.sequence, twin._output = sequence, self._output and self._output.fork()
        twin.told = self.told and self.told.fork(sequence)
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

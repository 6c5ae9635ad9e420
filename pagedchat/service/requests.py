"""One request while it runs: tokens in, text and figures out. Knows a sequence, no engine and no queue."""

import copy
from dataclasses import dataclass

from pagedchat.chat.output_processor import OutputProcessor
from pagedchat.engine.sequence import Sequence
from pagedchat.events import FinishReason, RequestFinished, RequestStarted, TextDelta


@dataclass(slots=True)
class Request:
    """A reply in the making. Times are seconds of one clock."""

    session_id: int
    request_id: int
    sequence: Sequence
    output: OutputProcessor
    asked: float
    """When the command came in."""
    num_seen: int
    """Tokens of the sequence that are in `output`, the prompt counted."""
    strip_start: bool = False
    """Leave out white space before the first word: a base model writes its reply after a colon."""
    first_token: float | None = None
    finished: FinishReason | None = None

    @property
    def num_tokens(self) -> int:
        """Generated so far."""
        return len(self.sequence) - self.sequence.num_prompt_tokens

    @property
    def text(self) -> str:
        """Released so far."""
        return self.output.text.lstrip() if self.strip_start else self.output.text

    def started(self) -> RequestStarted:
        """The event that opens a request."""
        num_prompt, num_cached = self._prompt_counts()
        return RequestStarted(self.session_id, self.request_id, num_prompt, num_cached)

    def take_tokens(self, now: float) -> TextDelta | None:
        """Take in what was generated since the last call; `None` if that is nothing."""
        new_ids = self.sequence.token_ids[self.num_seen :]
        if not new_ids:
            return None
        self.num_seen += len(new_ids)
        self.first_token = now if self.first_token is None else self.first_token
        if self.sequence.finish_reason == "stop" and new_ids[-1] in self.sequence.stop_token_ids:
            new_ids.pop()
        before = len(self.text)
        self.output.append(new_ids)
        return self._delta(before)

    def finish(self, reason: FinishReason) -> TextDelta | None:
        """No more tokens; the text held back, if there was any."""
        self.finished = "stop" if self.output.stopped else reason
        before = len(self.text)
        self.output.finish()
        return self._delta(before) if len(self.text) > before else None

    def all_text(self) -> TextDelta:
        """Everything released so far, for one who has heard nothing yet."""
        return self._delta(0)

    def figures(self, now: float) -> RequestFinished:
        """The event that closes a request."""
        num_prompt, num_cached = self._prompt_counts()
        return RequestFinished(
            self.session_id,
            self.request_id,
            self.finished or "abort",
            num_prompt,
            num_cached,
            self.num_tokens,
            (now if self.first_token is None else self.first_token) - self.asked,
            now - self.asked,
        )

    def fork(self, session_id: int, request_id: int, sequence: Sequence) -> "Request":
        """The same reply, gone on with by another sequence."""
        twin = copy.copy(self)
        twin.session_id, twin.request_id, twin.sequence = session_id, request_id, sequence
        twin.output = self.output.fork()
        return twin

    def _prompt_counts(self) -> tuple[int, int]:
        """A fork made in the middle of a reply has more than its prompt computed already."""
        seq = self.sequence
        return seq.num_prompt_tokens, min(seq.num_cached_tokens, seq.num_prompt_tokens)

    def _delta(self, start: int) -> TextDelta:
        return TextDelta(self.session_id, self.request_id, self.text[start:], self.num_tokens)

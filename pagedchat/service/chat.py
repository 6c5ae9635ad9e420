"""One session in the engine process: its conversation, and its last request with what the session is told of it.

Knows a reply, no engine and no queue.
"""

import copy
from dataclasses import dataclass

from pagedchat.chat.conversation import Conversation
from pagedchat.chat.replies import Reply
from pagedchat.engine.sequence import Sequence
from pagedchat.events import FinishReason, RequestFinished, RequestStarted, TextDelta


@dataclass(slots=True)
class Request:
    """A reply in the making, as events. Times are seconds of one clock."""

    session_id: int
    request_id: int
    reply: Reply
    asked: float
    """When the command came in."""
    first_token: float | None = None

    def started(self) -> RequestStarted:
        """The event that opens a request."""
        num_prompt, num_cached = self._prompt_counts()
        return RequestStarted(self.session_id, self.request_id, num_prompt, num_cached)

    def take_tokens(self, now: float) -> TextDelta | None:
        """Take in what was generated since the last call; `None` if that is nothing."""
        text = self.reply.take()
        if text is None:
            return None
        self.first_token = now if self.first_token is None else self.first_token
        return self._delta(text)

    def finish(self, reason: FinishReason) -> TextDelta | None:
        """No more tokens; the text held back, if there was any."""
        text = self.reply.finish(reason)
        return self._delta(text) if text else None

    def all_text(self) -> TextDelta:
        """Everything released so far, for one who has heard nothing yet."""
        return self._delta(self.reply.text)

    def figures(self, now: float) -> RequestFinished:
        """The event that closes a request."""
        num_prompt, num_cached = self._prompt_counts()
        return RequestFinished(
            self.session_id,
            self.request_id,
            self.reply.finish_reason or "abort",
            num_prompt,
            num_cached,
            self.reply.num_tokens,
            (now if self.first_token is None else self.first_token) - self.asked,
            now - self.asked,
        )

    def fork(self, session_id: int, request_id: int, sequence: Sequence) -> "Request":
        """The same reply, gone on with by another sequence."""
        twin = copy.copy(self)
        twin.session_id, twin.request_id, twin.reply = session_id, request_id, self.reply.fork(sequence)
        return twin

    def _prompt_counts(self) -> tuple[int, int]:
        """A fork made in the middle of a reply has more than its prompt computed already."""
        seq = self.reply.sequence
        return seq.num_prompt_tokens, min(seq.num_cached_tokens, seq.num_prompt_tokens)

    def _delta(self, text: str) -> TextDelta:
        return TextDelta(self.session_id, self.request_id, text, self.reply.num_tokens)


@dataclass(slots=True)
class Chat:
    """What is kept of one session. Its sequence has the session's id."""

    conversation: Conversation
    raw: bool
    request: Request | None = None
    """The last request, running or finished."""

    @property
    def running(self) -> Request | None:
        """The request that is being generated."""
        return self.request if self.request is not None and self.request.reply.finish_reason is None else None

    def add_reply(self) -> None:
        """The last request is finished: what it generated belongs to the conversation."""
        if self.request is not None:
            seq = self.request.reply.sequence
            num_prompt = seq.num_prompt_tokens
            self.conversation.add_reply(seq.token_ids[:num_prompt], seq.token_ids[num_prompt:])

"""The last reply of each chat of a terminal, as far as it has come: what a terminal that comes back is told.

Knows commands and events, no sockets and no engine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pagedchat.chat.turns import Turn
from pagedchat.events import (
    EngineDied,
    EngineEvent,
    EngineFailed,
    ReplyKept,
    RequestFailed,
    RequestFinished,
    RequestStarted,
    TextDelta,
)
from pagedchat.service.commands import AnyCommand, Close, Fork, Generate

MOST_CHARACTERS = 64 * 1024**2
"""Of all that is kept for one terminal; the oldest replies that are done are forgotten first."""
_RESUMED = 1 << 29
"""Requests that a terminal takes over have numbers from here on, which it does not use for its own."""


@dataclass(slots=True)
class KeptReply:
    """One chat's last request."""

    chat_id: int
    request_id: int
    turns: list[Turn]
    parts: list[TextDelta] = field(default_factory=list)
    """Of its text."""
    started: RequestStarted | None = None
    end: RequestFinished | RequestFailed | None = None

    @property
    def size(self) -> int:
        """Characters."""
        return sum(len(turn.text) for turn in self.turns) + sum(len(part.text) for part in self.parts)

    def all_text(self, session_id: int) -> TextDelta:
        """What has come so far, as one piece."""
        if not self.parts:
            return TextDelta(session_id, self.request_id, "", 0)
        text = "".join(part.text for part in self.parts)
        told = [token for part in self.parts for token in part.told]
        first = next((part.num_told for part in self.parts if part.told), 0)
        last = self.parts[-1]
        whole = TextDelta(session_id, self.request_id, text, last.num_tokens, told, first, self.parts[0].anew)
        self.parts = [whole]
        return whole


class KeptReplies:
    """Of one terminal, by its sessions; those of which a history knows nothing are left out."""

    def __init__(self) -> None:
        self._replies: dict[int, KeptReply] = {}
        self._num_resumed = 0

    @property
    def sessions(self) -> dict[int, int]:
        """Session -> by what a history knows its chat."""
        return {session_id: reply.chat_id for session_id, reply in self._replies.items()}

    @property
    def num_running(self) -> int:
        """Replies that are not done."""
        return sum(reply.end is None for reply in self._replies.values())

    # --- what is said -------------------------------------------------------------------------------

    def asked(self, command: AnyCommand) -> None:
        """The terminal has sent this."""
        match command:
            case Generate():
                self._keep(command.session_id, KeptReply(command.chat_id, command.request_id, command.turns))
            case Fork() if command.session_id in self._replies:
                source = self._replies[command.session_id]
                self._keep(command.new_session_id, KeptReply(command.chat_id, command.request_id, source.turns))
            case Close():
                self._replies.pop(command.session_id, None)

    def heard(self, event: EngineEvent) -> None:
        """The engine has said this about one of its requests, or about itself."""
        if isinstance(event, EngineDied | EngineFailed):
            self._interrupt()
            return
        reply = self._replies.get(getattr(event, "session_id", 0))
        if reply is None or getattr(event, "request_id", 0) != reply.request_id:
            return
        match event:
            case RequestStarted():
                reply.started, reply.parts = event, []
            case TextDelta(anew=True):
                reply.parts = [event]
            case TextDelta():
                reply.parts.append(event)
            case RequestFinished() | RequestFailed():
                reply.end = event

    def _keep(self, session_id: int, reply: KeptReply) -> None:
        self._replies.pop(session_id, None)
        if reply.chat_id:
            self._replies[session_id] = reply
            self._keep_small()

    def _keep_small(self) -> None:
        size = sum(reply.size for reply in self._replies.values())
        for session_id, reply in list(self._replies.items()):
            if size <= MOST_CHARACTERS:
                return
            if reply.end is not None:
                size -= reply.size
                del self._replies[session_id]

    def _interrupt(self) -> None:
        """The engine is gone: replies that it had begun end where they are."""
        for session_id, reply in self._replies.items():
            if reply.end is None and reply.started is not None:
                num_prompt, num_tokens = (
                    max(1, reply.started.num_prompt_tokens),
                    reply.all_text(session_id).num_tokens,
                )
                reply.end = RequestFinished(
                    session_id, reply.request_id, "error", num_prompt, 0, num_tokens, 0.0, 0.0
                )

    # --- who comes back -----------------------------------------------------------------------------

    def renumber(self, sessions: Mapping[int, int]) -> dict[int, int]:
        """Another terminal takes over: old numbers of sessions -> new ones, of all that are kept.

        Returns:
            The same of requests.
        """
        replies = {sessions[session_id]: reply for session_id, reply in self._replies.items()}
        requests: dict[int, int] = {}
        for session_id, reply in replies.items():
            self._num_resumed += 1
            requests[reply.request_id] = new_id = _RESUMED + self._num_resumed
            reply.request_id = new_id
            reply.started = _renumbered(reply.started, session_id, new_id)
            reply.end = _renumbered(reply.end, session_id, new_id)
        self._replies = replies
        return requests

    def story(self) -> list[EngineEvent]:
        """All of it, as a terminal that has heard nothing is to hear it."""
        events: list[EngineEvent] = []
        for session_id, reply in self._replies.items():
            told = reply.all_text(session_id)
            turns: list[tuple[str, str]] = [(turn.role, turn.text) for turn in reply.turns]
            events.append(
                ReplyKept(session_id, reply.request_id, reply.chat_id, turns, told.text, reply.end is not None)
            )
            if reply.started is not None:
                events += [reply.started, told]
            if reply.end is not None:
                events.append(reply.end)
        return events


def _renumbered(event: Any, session_id: int, request_id: int) -> Any:
    return event and msgspec.structs.replace(event, session_id=session_id, request_id=request_id)

"""One reply of several to a chat, as OpenAI's API tells it: whole, or in pieces."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from pagedchat.server.http.conversation import Conversation
from pagedchat.server.http.endpoints.common import check_reply
from pagedchat.server.http.logprobs import chat_logprobs
from pagedchat.server.http.schemas.chat import (
    ChatChoice,
    ChatLogprobs,
    ChunkChoice,
    Delta,
    FinishReason,
    Reply,
    ToldCall,
    ToldFunction,
)
from pagedchat.server.http.tools import call_id
from pagedchat.server.replies.parts import Arguments, CallBegun, Part, Text, Thought
from pagedchat.server.replies.reply_parser import ParsedReply

if TYPE_CHECKING:
    from pagedchat.outputs import CompletionOutput

_NOTHING = Delta()


class ChoiceTeller:
    """Tells one reply.

    Args:
        conversation: that it belongs to.
        top_logprobs: how many of the most likely tokens are told; None tells no logprobs.
        thoughts: whether thoughts are told.
        token_ids: whether tokens are told.
    """

    def __init__(
        self,
        conversation: Conversation,
        top_logprobs: int | None,
        *,
        thoughts: bool = True,
        token_ids: bool = False,
    ) -> None:
        self._conversation = conversation
        self._parser = conversation.parser()
        self._top_logprobs = top_logprobs
        self._tells_thoughts = thoughts
        self._tells_ids = token_ids
        self._num_calls = 0
        self._is_first = True

    def whole(self, reply: "CompletionOutput") -> ChatChoice:
        """A reply that is complete."""
        parsed = ParsedReply()
        parsed.add(self._parts(reply))
        calls = [
            ToldCall(id=call_id(), type="function", function=ToldFunction(name=call.name, arguments=call.arguments))
            for call in parsed.calls
        ]
        has_thought = bool(parsed.thought) and self._tells_thoughts
        message = Reply(
            content=parsed.text if parsed.text or not calls else None,
            reasoning_content=parsed.thought if has_thought else msgspec.UNSET,
            tool_calls=calls or msgspec.UNSET,
        )
        return ChatChoice(
            index=reply.index,
            message=message,
            finish_reason=self._finish_reason(reply) or "stop",
            logprobs=self._logprobs(reply),
            stop_reason=reply.stop_reason,
            token_ids=reply.token_ids if self._tells_ids else msgspec.UNSET,
        )

    def pieces(self, reply: "CompletionOutput") -> list[ChunkChoice]:
        """What is new of a reply: a piece for each part that grew, and one for its end if nothing else."""
        deltas = [delta for part in self._parts(reply) if (delta := self._delta(part)) is not None]
        reason, logprobs = self._finish_reason(reply), self._logprobs(reply)
        if not deltas and (reason or logprobs or (self._tells_ids and reply.token_ids)):
            deltas = [_NOTHING]
        if not deltas:
            return []
        if self._is_first:
            self._is_first = False
            deltas[0] = msgspec.structs.replace(deltas[0], role="assistant")
        pieces = [ChunkChoice(index=reply.index, delta=delta) for delta in deltas]
        if logprobs or self._tells_ids:
            ids = reply.token_ids if self._tells_ids else msgspec.UNSET
            pieces[0] = msgspec.structs.replace(pieces[0], logprobs=logprobs, token_ids=ids)
        if reason:
            pieces[-1] = msgspec.structs.replace(pieces[-1], finish_reason=reason, stop_reason=_stop_reason(reply))
        return pieces

    def _parts(self, reply: "CompletionOutput") -> list[Part]:
        if self._parser is None:
            return [Text(reply.text)] if reply.text else []
        parts = self._parser.feed(reply.text)
        if reply.finish_reason is not None:
            parts += self._parser.finish()
        self._count_thoughts(parts)
        return parts

    def _count_thoughts(self, parts: Iterable[Part]) -> None:
        for part in parts:
            if isinstance(part, Thought):
                self._conversation.add_thought(part.text)

    def _delta(self, part: Part) -> Delta | None:
        match part:
            case Text(text):
                return Delta(content=text)
            case Thought(text):
                return Delta(reasoning_content=text) if self._tells_thoughts else None
            case CallBegun(name):
                self._num_calls += 1
                function = ToldFunction(name=name, arguments="")
                call = ToldCall(index=self._num_calls - 1, id=call_id(), type="function", function=function)
            case Arguments(text):
                call = ToldCall(index=self._num_calls - 1, function=ToldFunction(arguments=text))
        return Delta(tool_calls=[call])

    def _finish_reason(self, reply: "CompletionOutput") -> FinishReason | None:
        reason = check_reply(reply)
        has_calls = self._parser is not None and self._parser.has_calls
        return "tool_calls" if reason == "stop" and has_calls else reason

    def _logprobs(self, reply: "CompletionOutput") -> ChatLogprobs | None:
        if self._top_logprobs is None or not reply.token_ids:
            return None
        return chat_logprobs(reply.token_ids, reply.logprobs or [], self._top_logprobs)


def _stop_reason(reply: "CompletionOutput") -> int | str | msgspec.UnsetType:
    return msgspec.UNSET if reply.stop_reason is None else reply.stop_reason

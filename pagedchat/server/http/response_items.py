"""The items of one answer of `/v1/responses`, thought, text and calls, and the events that tell how they grow."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from pagedchat.server.http.endpoints.common import new_id
from pagedchat.server.http.schemas.chat import ChatLogprob
from pagedchat.server.http.schemas.responses import (
    FunctionCall,
    OutputItem,
    OutputMessage,
    OutputText,
    ReasoningItem,
    ReasoningText,
)
from pagedchat.server.http.tools import call_id
from pagedchat.server.replies.parts import Arguments, CallBegun, Part, Text, Thought

Event = dict[str, Any]
"""`type`, and what goes with it."""
_KINDS: dict[type, str] = {Text: "message", Thought: "reasoning", CallBegun: "function_call"}


class ResponseItems:
    """Grows by parts of a reply."""

    def __init__(self) -> None:
        self.items: list[OutputItem] = []
        """Those that are complete, and the one that grows as the last."""
        self._kind = ""
        """Of the one that grows; empty: none does."""
        self._text = ""
        self._logprobs: list[ChatLogprob] = []

    def add(self, part: Part, logprobs: list[ChatLogprob] | None = None) -> Iterator[Event]:
        """More of the reply, with logprobs of its tokens; the events that tell of it."""
        if isinstance(part, Arguments):
            yield from self._grow(part.text)
            return
        kind = _KINDS[type(part)]
        if kind != self._kind or kind == "function_call":
            yield from self.close("completed")
            yield from self._open(kind, part.name if isinstance(part, CallBegun) else "")
        if not isinstance(part, CallBegun):
            yield from self._grow(part.text, logprobs)

    def close(self, status: str) -> Iterator[Event]:
        """The item that grows is complete, or is not going to be."""
        if not self._kind:
            return
        done = _DONE[self._kind]
        self.items[-1] = item = self._item(status)
        told: dict[str, Any] = {"text": self._text}
        if isinstance(item, FunctionCall):
            told = {"name": item.name, "arguments": self._text}
        elif self._kind == "message":
            told["logprobs"] = self._logprobs
        yield self._event(done, **told)
        if not isinstance(item, FunctionCall):
            yield self._event("response.content_part.done", part=item.content[0])
        yield {"type": "response.output_item.done", "output_index": len(self.items) - 1, "item": item}
        self._kind, self._text, self._logprobs = "", "", []

    def _open(self, kind: str, name: str) -> Iterator[Event]:
        self._kind = kind
        self._opened_id, self._call = new_id(_PREFIX[kind]), (call_id(), name)
        self.items.append(self._item("in_progress"))
        item = self.items[-1]
        empty = item if isinstance(item, FunctionCall) else msgspec.structs.replace(item, content=[])
        yield {"type": "response.output_item.added", "output_index": len(self.items) - 1, "item": empty}
        if not isinstance(item, FunctionCall):
            yield self._event("response.content_part.added", part=item.content[0])

    def _grow(self, text: str, logprobs: list[ChatLogprob] | None = None) -> Iterator[Event]:
        self._text += text
        told: dict[str, Any] = {"delta": text}
        if self._kind == "message":
            told["logprobs"] = logprobs or []
            self._logprobs += logprobs or []
        yield self._event(_DELTA[self._kind], **told)

    def _item(self, status: Any) -> OutputItem:
        match self._kind:
            case "message":
                content = OutputText(text=self._text, logprobs=self._logprobs)
                return OutputMessage(id=self._opened_id, status=status, content=[content])
            case "reasoning":
                return ReasoningItem(id=self._opened_id, status=status, content=[ReasoningText(text=self._text)])
        call, name = self._call
        return FunctionCall(id=self._opened_id, call_id=call, name=name, arguments=self._text, status=status)

    def _event(self, kind: str, **told: Any) -> Event:
        where = {"item_id": self._opened_id, "output_index": len(self.items) - 1}
        if self._kind != "function_call":
            where["content_index"] = 0
        return {"type": kind, **where, **told}


def drained(events: Iterable[Event]) -> None:
    """Of a whole answer nobody hears events."""
    for _ in events:
        pass


_PREFIX = {"message": "msg", "reasoning": "rs", "function_call": "fc"}
_DELTA = {
    "message": "response.output_text.delta",
    "reasoning": "response.reasoning_text.delta",
    "function_call": "response.function_call_arguments.delta",
}
_DONE = {
    "message": "response.output_text.done",
    "reasoning": "response.reasoning_text.done",
    "function_call": "response.function_call_arguments.done",
}

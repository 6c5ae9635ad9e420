"""A reply as thoughts, text and calls of tools, while it comes; the whole at once is one piece of it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from pagedchat.server.replies.parts import Arguments, CallBegun, Part, Text, Thought
from pagedchat.server.replies.thoughts import ThoughtSplitter
from pagedchat.server.replies.tool_calls import CallSplitter


class ReplyParser:
    """Parses one reply.

    Args:
        thoughts: None leaves thoughts in the text.
        calls: None leaves calls in the text.
        one_call: of several calls only the first is told.
        strip_start: white space before the first word is left out: a base model writes its reply after a colon.
    """

    def __init__(
        self,
        thoughts: ThoughtSplitter | None,
        calls: CallSplitter | None,
        *,
        one_call: bool = False,
        strip_start: bool = False,
    ) -> None:
        self._thoughts = thoughts
        self._calls = calls
        self._one_call = one_call
        self._num_begun = 0
        self._at_start = strip_start

    @property
    def has_calls(self) -> bool:
        """Whether there was a call by now."""
        return self._calls is not None and self._calls.num_calls > 0

    def feed(self, text: str) -> list[Part]:
        """What the next piece brings."""
        if self._at_start:
            text = text.lstrip()
            self._at_start = not text
        thoughts = self._thoughts
        parts: list[Part] = [Text(text)] if text else []
        if thoughts is not None and not thoughts.answering:
            parts = thoughts.feed(text)
        return self._split(parts)

    def finish(self) -> list[Part]:
        """The reply has ended."""
        parts = self._split(self._thoughts.finish()) if self._thoughts is not None else []
        return parts + (self._wanted(self._calls.finish()) if self._calls is not None else [])

    def _split(self, parts: list[Part]) -> list[Part]:
        """Calls told apart from text."""
        if self._calls is None:
            return parts
        told: list[Part] = []
        for part in parts:
            told += self._calls.feed(part.text) if isinstance(part, Text) else [part]
        return self._wanted(told)

    def _wanted(self, parts: list[Part]) -> list[Part]:
        if not self._one_call:
            return parts
        told: list[Part] = []
        for part in parts:
            self._num_begun += isinstance(part, CallBegun)
            if self._num_begun <= 1 or not isinstance(part, CallBegun | Arguments):
                told.append(part)
        return told


@dataclass(slots=True)
class Called:
    """A call of a tool."""

    name: str
    arguments: str = ""
    """JSON."""


@dataclass(slots=True)
class ParsedReply:
    """All parts of a reply put together."""

    text: str = ""
    thought: str = ""
    calls: list[Called] = field(default_factory=list)

    def add(self, parts: Iterable[Part]) -> None:
        """More of it."""
        for part in parts:
            match part:
                case Text(text):
                    self.text += text
                case Thought(text):
                    self.thought += text
                case CallBegun(name):
                    self.calls.append(Called(name))
                case Arguments(text):
                    self.calls[-1].arguments += text

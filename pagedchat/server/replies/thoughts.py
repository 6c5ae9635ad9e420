"""Where a model thinks before it answers, told apart while the text comes. Knows the tags that models write.

A thought is at the beginning of a reply. Some models are made to begin with one: then the prompt ends with the
opening tag, and only the closing one is in the reply.
"""

import re

from pagedchat.server.replies.parts import Part, Text, Thought

_NAMES = ("think", "thinking", "thought", "reasoning")
_OPENING = tuple(f"<{name}>" for name in _NAMES)
_AT_END = re.compile(rf"<({'|'.join(_NAMES)})>\s*\Z")


def opened_by(prompt: str) -> str:
    """The name of the tag that the prompt ends with; empty if it ends otherwise."""
    found = _AT_END.search(prompt)
    return found[1] if found else ""


class ThoughtSplitter:
    """Splits one reply. White space around a thought belongs to nobody.

    Args:
        opened: the tag that the prompt ends with.
    """

    def __init__(self, opened: str = "") -> None:
        self._closing = f"</{opened}>" if opened else ""
        """Set while a thought is open."""
        self._held = ""
        """Came and may still be something else: the beginning of a tag, or white space."""
        self._at_start = True
        self._has_thought = bool(opened)
        self.answering = False
        """Whether everything from now on is text."""

    def feed(self, text: str) -> list[Part]:
        """What the next piece of the reply brings."""
        if self.answering:
            return [Text(text)] if text else []
        self._held += text
        if not self._has_thought and not self._find_opening():
            return []
        return self._feed_thought() if self._closing else self._answer(self._held)

    def finish(self) -> list[Part]:
        """The reply has ended."""
        held, self._held = self._held, ""
        if self._closing:
            return [Thought(held.rstrip())] if held.strip() else []
        return [Text(held)] if held.strip() or (held and not self._has_thought) else []

    def _find_opening(self) -> bool:
        """Whether it is known by now how the reply begins."""
        start = self._held.lstrip()
        for tag in _OPENING:
            if start.startswith(tag):
                self._closing, self._held = f"</{tag[1:]}", start[len(tag) :]
                self._has_thought = True
                return True
        return bool(start) and not any(tag.startswith(start) for tag in _OPENING)

    def _feed_thought(self) -> list[Part]:
        if self._at_start:
            self._held = self._held.lstrip()
            self._at_start = not self._held
        end = self._held.find(self._closing)
        if end >= 0:
            thought, rest = self._held[:end].rstrip(), self._held[end + len(self._closing) :]
            self._closing = ""
            told: list[Part] = [Thought(thought)] if thought else []
            return told + self._answer(rest)
        stays = len(self._held.rstrip()) if self._held[-1:].isspace() else _before_tag(self._held, self._closing)
        thought, self._held = self._held[:stays], self._held[stays:]
        return [Thought(thought)] if thought else []

    def _answer(self, text: str) -> list[Part]:
        if self._has_thought:
            text = text.lstrip()
            if not text:  # more of the space that follows a thought
                self._closing, self._held = "", ""
                return []
        self.answering, self._held = True, ""
        return [Text(text)] if text else []


def _before_tag(text: str, tag: str) -> int:
    """Characters that come before a tag, or before what may become one; white space before that is not counted."""
    longest = next((n for n in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:n])), 0)
    return len(text[: len(text) - longest].rstrip()) if longest else len(text)

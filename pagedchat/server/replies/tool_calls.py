"""The calls of tools in a reply, told apart from its text while it comes. The formats are in `tool_formats.py`.

However the text is cut into pieces, the parts are the same. White space around calls belongs to nobody.
"""

import re
from collections.abc import Collection
from enum import Enum

from pagedchat.server.replies.call_scanner import CallScanner
from pagedchat.server.replies.parts import CallBegun, Part, Text
from pagedchat.server.replies.tool_formats import HERMES, HERMES_END, MISTRAL, PYTHON_TAG, ToolFormat

_MARKS = {"hermes": HERMES, "mistral": MISTRAL, "llama3_json": PYTHON_TAG}
_NAME_BEFORE = re.compile(r"([\w.:-]+)\s*(?:\[CALL_ID\]\s*[\w-]*\s*)?(?:\[ARGS\]\s*)?(?=\{)")
_SEPARATORS = {MISTRAL: re.compile(r"(?:\[TOOL_CALLS\]|\[(?!\Z|T)|[\],\s])*"), PYTHON_TAG: re.compile(r"[;\s]*")}
_MAY_BE_NAME = re.compile(r"[\w.:-]{1,128}\s*(?:\[[\w\[\]\s-]{0,160})?\Z")


class _Where(Enum):
    """In a reply."""

    TEXT = 0
    CALL = 1
    BETWEEN = 2
    """Behind a mark or a call: another call may follow."""


class CallSplitter:
    """Splits the text of one reply, from which thoughts are left out.

    Args:
        kind: the format.
        tools: names of those that may be called.
        in_list: the whole reply is a list of calls, as it was told to be.
        name: the whole reply is the arguments of this one, as it was told to be.
    """

    def __init__(
        self, kind: ToolFormat, tools: Collection[str], *, in_list: bool = False, name: str | None = None
    ) -> None:
        self._marks = tuple(mark for each, mark in _MARKS.items() if kind in ("auto", each))
        self._may_be_bare = kind in ("auto", "llama3_json")
        """Whether a reply without marks may still turn out to be a call."""
        self._tools = frozenset(tools)
        self._where = _Where.TEXT
        self._held = ""
        """Not yet read."""
        self._raw = ""
        """Of a call of which it is not known whether it is one: as it was written, its mark included."""
        self._mark = HERMES
        """Behind which the calls stand that are being read."""
        self._is_bare = self._is_known = False
        """Whether what is being read has no mark; whether it is a call for certain."""
        self._scanner = CallScanner()
        self.num_calls = 0
        if in_list:
            self._where, self._mark = _Where.BETWEEN, MISTRAL
        elif name is not None:
            self._where, self._scanner = _Where.CALL, CallScanner(name)
            self.num_calls, self._is_known = 1, True

    def feed(self, text: str) -> list[Part]:
        """What the next piece of the text brings."""
        self._held += text
        told: list[Part] = []
        while self._held:
            before = self._where, self._held, self._scanner
            if self._where is _Where.TEXT:
                told += self._read_text()
            elif self._where is _Where.CALL:
                told += self._read_call()
            else:
                told += self._look_for_call()
            if before == (self._where, self._held, self._scanner):
                break
        return told

    def finish(self) -> list[Part]:
        """The reply has ended; a call whose name was told stays one, even if its end is missing."""
        left, self._raw, self._held = self._raw + self._held, "", ""
        if self._where is _Where.CALL and self._is_known:
            return self._scanner.take()
        return [Text(left)] if left.strip() or (left and not self.num_calls) else []

    # --- text -------------------------------------------------------------------------------------------

    def _read_text(self) -> list[Part]:
        if self._may_be_bare:
            start = self._held.lstrip()
            if not start:
                return []
            self._may_be_bare = False
            if start.startswith("{"):
                self._begin(PYTHON_TAG, self._held[: -len(start)], start, is_bare=True)
                return []
        found = [(place, mark) for mark in self._marks if (place := self._held.find(mark)) >= 0]
        if found:
            place, mark = min(found)
            text = self._held[:place]
            self._begin(mark, mark, self._held[place + len(mark) :])
            return [Text(text.rstrip())] if text.strip() else []
        stays = min((_before(self._held, mark) for mark in self._marks), default=len(self._held))
        stays = len(self._held[:stays].rstrip())
        text, self._held = self._held[:stays], self._held[stays:]
        return [Text(text)] if text else []

    def _begin(self, mark: str, raw: str, held: str, *, is_bare: bool = False) -> None:
        """A call seems to stand here, or, behind Mistral's mark, a list of them, or its name."""
        self._mark, self._raw, self._held, self._is_bare = mark, raw, held, is_bare
        self._is_known = False
        self._scanner = CallScanner()
        self._where = _Where.BETWEEN if mark == MISTRAL else _Where.CALL

    # --- calls ------------------------------------------------------------------------------------------

    def _read_call(self) -> list[Part]:
        scanner = self._scanner
        used = scanner.feed(self._held)
        self._raw += self._held[:used]
        self._held = self._held[used:]
        parts = scanner.take()
        if not self._is_known:
            if scanner.failed or (parts and not self._may_be_called(parts[0])):
                return self._give_up()
            self._is_known = bool(parts)
            self.num_calls += self._is_known
        if self._is_known:
            self._raw = ""
        if scanner.done:
            self._where = _Where.BETWEEN
        elif scanner.failed:
            self._where = _Where.TEXT
        return parts

    def _may_be_called(self, part: Part) -> bool:
        return isinstance(part, CallBegun) and (not self._is_bare or part.name in self._tools)

    def _give_up(self) -> list[Part]:
        """It is none: it was text."""
        text, self._raw, self._where = self._raw, "", _Where.TEXT
        return [Text(text)] if text else []

    def _look_for_call(self) -> list[Part]:
        """Behind a call, or Mistral's mark: is there another one?"""
        if self._mark == HERMES:
            held = self._held.lstrip()
            if held.startswith(HERMES_END):
                self._where, self._held = _Where.TEXT, held[len(HERMES_END) :]
            elif not HERMES_END.startswith(held):
                self._where = _Where.TEXT
            return []
        separators = _SEPARATORS[self._mark].match(self._held)
        held = self._held[separators.end() :] if separators else self._held
        if self._raw:
            self._raw += self._held[: len(self._held) - len(held)]
        self._held = held
        name = _NAME_BEFORE.match(held) if self._mark == MISTRAL else None
        if held.startswith("{") or name:
            self._where, self._is_known = _Where.CALL, False
            self._scanner = CallScanner(name and name[1])
        elif held and not (self._mark == MISTRAL and (_MAY_BE_NAME.match(held) or MISTRAL.startswith(held))):
            return self._give_up()
        if name:
            self._raw, self._held = self._raw + name[0], held[name.end() :]
        return []


def _before(text: str, mark: str) -> int:
    """Characters before what may become a mark."""
    longest = next((n for n in range(min(len(mark) - 1, len(text)), 0, -1) if text.endswith(mark[:n])), 0)
    return len(text) - longest

"""One call of a tool, `{"name": ..., "arguments": {...}}`, read character by character while a model writes it.

The name is told as soon as it is known, the arguments as they come, as they stand there. Both orders of the keys
are read, and `parameters` for `arguments`, as Llama writes it. Knows JSON, no format's marks.
"""

import json
from collections.abc import Generator

from pagedchat.server.replies.parts import Arguments, CallBegun, Part

_NAME_KEYS = ("name", "function")
_ARGUMENT_KEYS = ("arguments", "parameters")
_SPACE = " \t\r\n"
_MOST_HELD = 1 << 16
"""Characters of a name or a key; more is none."""

Reading = Generator[None, str, str]
"""Takes characters one by one; returns the first one that is not its own, if it has met one."""


class _NoCallError(Exception):
    """What the model writes is no call."""


class CallScanner:
    """Reads one call.

    Args:
        name: of a call whose name was told before the object, which then is the arguments alone.
    """

    def __init__(self, name: str | None = None) -> None:
        self.parts: list[Part] = [] if name is None else [CallBegun(name)]
        """Not yet taken."""
        self.begun = name is not None
        """Whether the name is known."""
        self.done = self.failed = False
        """Whether it is read to its end, or is none."""
        self._arguments: list[str] = []
        """Not yet told: the name is not known."""
        self._has_arguments = name is not None
        self._reading = self._call() if name is None else self._bare_arguments()
        next(self._reading)

    def feed(self, text: str) -> int:
        """Read on, until the call is `done`, or `failed`, or its name is known just now.

        Returns:
            How many characters of `text` belong to the call.
        """
        had_begun = self.begun
        for place, char in enumerate(text):
            try:
                self._reading.send(char)
            except StopIteration as end:
                self.done = True
                return place if end.value else place + 1
            except _NoCallError:
                self.failed = True
                return place
            if self.begun != had_begun:
                return place + 1
        return len(text)

    def take(self) -> list[Part]:
        """What came since the last time; arguments in one piece."""
        parts, self.parts = self.parts, []
        joined: list[Part] = []
        for part in parts:
            if joined and isinstance(part, Arguments) and isinstance(joined[-1], Arguments):
                joined[-1] = Arguments(joined[-1].text + part.text)
            else:
                joined.append(part)
        return joined

    # --- the grammar ----------------------------------------------------------------------------------

    def _call(self) -> Reading:
        char = yield from self._skip(_SPACE)
        if char != "{":
            raise _NoCallError
        while True:
            char = yield from self._skip(_SPACE + ",")
            if char == "}":
                break
            key, char = yield from self._string(char)
            if char in _SPACE:
                char = yield from self._skip(_SPACE)
            if char != ":":
                raise _NoCallError
            char = yield from self._skip(_SPACE)
            if (yield from self._value(key, char)):
                break
        if not self.begun:
            raise _NoCallError
        if not self._has_arguments:
            self._tell("{}")
        return ""

    def _value(self, key: str, char: str) -> Generator[None, str, bool]:
        """One value of the call. Whether that was the last: a number is ended by the brace behind it."""
        if key in _NAME_KEYS and char == '"':
            name, char = yield from self._string(char)
            self._begin(name)
        elif key in _ARGUMENT_KEYS and char == '"':  # arguments as a text of JSON
            text, char = yield from self._string(char, 1 << 30)
            self._tell(text)
        else:
            char = yield from self._any(char, told=key in _ARGUMENT_KEYS)
        if char in _SPACE:
            char = yield from self._skip(_SPACE)
        if char not in ",}":
            raise _NoCallError
        return char == "}"

    def _bare_arguments(self) -> Reading:
        char = yield from self._skip(_SPACE)
        if char != "{":
            return char
        yield from self._nested(char, told=True)
        return ""

    def _any(self, char: str, told: bool) -> Generator[None, str, str]:
        """A value of any kind; returns the character behind it."""
        if char in "{[":
            yield from self._nested(char, told)
            return (yield)
        inside = False
        while inside or char not in ",}" + _SPACE:
            if told:
                self._tell(char)
            if char == '"':
                inside = not inside
            elif char == "\\" and inside:
                char = yield
                if told:
                    self._tell(char)
            char = yield
        return char

    def _nested(self, char: str, told: bool) -> Generator[None, str, None]:
        """An object or a list, up to its end."""
        depth, inside = 0, False
        while True:
            if told:
                self._tell(char)
            if inside:
                if char == "\\":
                    char = yield
                    if told:
                        self._tell(char)
                elif char == '"':
                    inside = False
            elif char == '"':
                inside = True
            elif char in "{[":
                depth += 1
            elif char in "}]":
                depth -= 1
                if not depth:
                    return
            char = yield

    def _string(self, char: str, most: int = _MOST_HELD) -> Generator[None, str, tuple[str, str]]:
        """A text, and the character behind it."""
        if char != '"':
            raise _NoCallError
        held = [char]
        while len(held) < most:
            char = yield
            held.append(char)
            if char == "\\":
                held.append((yield))
            elif char == '"':
                try:
                    text = json.loads("".join(held), strict=False)
                except ValueError:
                    raise _NoCallError from None
                return text, (yield)
        raise _NoCallError

    @staticmethod
    def _skip(chars: str) -> Generator[None, str, str]:
        char = yield
        while char in chars:
            char = yield
        return char

    # --- what is told -----------------------------------------------------------------------------------

    def _begin(self, name: str) -> None:
        if not name or self.begun:
            raise _NoCallError
        self.begun = True
        self.parts.append(CallBegun(name))
        if self._arguments:
            self.parts.append(Arguments("".join(self._arguments)))
            self._arguments.clear()

    def _tell(self, text: str) -> None:
        self._has_arguments = True
        if self.begun:
            self.parts.append(Arguments(text))
        else:
            self._arguments.append(text)

"""Where in a JSON text a reply stands, as far as it takes to know that its next mask is the one before.

In the midst of a text that may be any text, it does not matter how it goes on: whatever bare characters come next,
all that may follow then is what might have followed now. So the mask stays as it is, and who follows the reply may
even do without these characters::

    {"title": "The s        what may follow is the same here
    {"title": "The second   and here, and the library need not have read "econd"
    {"title": "The \\         but not here

Where a text is bounded in length, the mask is the same as long as no token could end it too early or make it too
long; what has been read counts then. Of everything else nothing is said. That holds of the replies that a schema
allows, whoever decides on them, if masks are what they are to be: the tokens with which one of these may go on.

Knows schemas and tokens; no masks and no library.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from pagedchat.runtime.structured.free_texts import Node, SchemaPaths
from pagedchat.runtime.structured.token_texts import TokenTexts

_CLOSED = -1.0
_HEX_DIGITS = 4


@dataclass(frozen=True, slots=True)
class JsonPlaces:
    """What all replies of one schema share."""

    schema: SchemaPaths
    texts: TokenTexts

    def begin(self) -> "JsonPlace":
        """Of a reply without tokens."""
        return JsonPlace(self)


class _Inside(NamedTuple):
    """An object or an array that is open."""

    node: Node
    is_object: bool


class JsonPlace:
    """That of one reply; made by `JsonPlaces`."""

    __slots__ = (
        "_bounds", "_escape", "_inside", "_is_key", "_is_text", "_key", "_node", "_num_chars", "_rest", "_schema",
        "_texts", "is_lost", "num_passed", "plain", "room",
    )  # fmt: skip

    def __init__(self, shared: JsonPlaces) -> None:
        self._schema, self._texts = shared.schema, shared.texts
        self.plain = shared.texts.plain
        """See `TokenTexts`."""
        self.is_lost = False
        """Whether it is not known any more."""
        self.room = _CLOSED
        """Bare characters that change nothing about the next mask, from what was read on; below 0: any may."""
        self.num_passed = 0
        """Of these, those that came and were not read; of no meaning where they need not be."""
        self._inside: list[_Inside] = []
        self._node: Node = shared.schema.root
        """Of the value that comes next, or of the text that is open; None for a key."""
        self._is_text = self._is_key = False
        """Whether a text is open, and whether that is a key; between texts, whether a key comes next."""
        self._escape = 0
        """Characters that belong to what a backslash has begun."""
        self._key: str | None = ""
        """As far as it was read; None: it has escapes."""
        self._num_chars: int | None = 0
        """Of the text that is open; None: it has escapes, which may count in more ways than one."""
        self._bounds = shared.schema.bounds(None)
        self._rest = b""
        """Of a character that ends with another token."""

    @property
    def is_free(self) -> bool:
        """Whether bare characters need not be read at all."""
        return self.room == math.inf

    def passes(self, token: int) -> bool:
        """Whether the mask behind this token is the one before it; if so, it counts as passed."""
        count = self.plain[token]
        if not count or self.num_passed + count > self.room:
            return False
        self.num_passed += count
        return True

    def read_plain(self, token_ids: list[int]) -> bool:
        """Go on with tokens that all pass; False, with nothing done, if they do not, or need not be read."""
        counts = [self.plain[token] for token in token_ids]
        total = sum(counts)
        if self.is_free or total > self.room or 0 in counts:
            return False
        self._num_chars, self.room = (self._num_chars or 0) + total, self.room - total
        self.num_passed = max(0, self.num_passed - total)
        return True

    def read(self, token: int) -> bool:
        """Go on with a token; False where it makes no difference, so that nobody need read it."""
        count = self.plain[token]
        if count and self.is_free:
            return False
        if not self.is_lost and not self.read_plain([token]):
            self._read_on(token)
        return True

    def _read_on(self, token: int) -> None:
        """Character by character."""
        self.num_passed = 0
        said = self._texts.of(token)
        if said is None:
            self.is_lost, self.room = True, _CLOSED
            return
        data = self._rest + said
        try:
            text, self._rest = data.decode("utf-8"), b""
        except UnicodeDecodeError as error:
            if error.end < len(data) or error.reason != "unexpected end of data":
                self.is_lost, self.room = True, _CLOSED
                return
            text, self._rest = data[: error.start].decode("utf-8"), data[error.start :]
        for char in text:
            if self._is_text:
                self._read_in_text(char)
            else:
                self._read_between(char)
        self.room = self._room()

    def _read_in_text(self, char: str) -> None:
        if self._escape:
            self._escape = _HEX_DIGITS if self._escape == 1 and char == "u" else self._escape - 1
        elif char == "\\":
            self._escape, self._key, self._num_chars = 1, None, None
        elif char == '"':
            self._is_text = False
        else:
            if self._key is not None and self._is_key:
                self._key += char
            if self._num_chars is not None:
                self._num_chars += 1

    def _read_between(self, char: str) -> None:
        if char == '"':
            self._is_text, self._key, self._num_chars = True, "", 0
            self._bounds = self._schema.bounds(self._node)
        elif char in "{[":
            self._inside.append(_Inside(self._node, char == "{"))
            self._begin_part()
        elif char in "}]":
            if self._inside:
                self._inside.pop()
            self._node, self._is_key = None, False
        elif char == ",":
            self._begin_part()
        elif char == ":":
            within = self._inside[-1].node if self._inside else None
            self._node = None if self._key is None else self._schema.value(within, self._key)
            self._is_key = False

    def _begin_part(self) -> None:
        """Of what is open: the next key, or the next element."""
        within, self._is_key = self._inside[-1] if self._inside else _Inside(None, False)
        self._node = None if self._is_key else self._schema.item(within)

    def _room(self) -> float:
        if not self._is_text or self._escape or self._rest or self._bounds is None:
            return _CLOSED
        least, most = self._bounds
        if not least and most is None:
            return math.inf
        if self._num_chars is None:
            return _CLOSED
        if most is None and self._num_chars >= least:
            return math.inf
        # No token has more characters than bytes: with the longest one it is neither ended nor too long.
        longest = self._texts.most_bytes
        ends = [] if most is None else [most - longest - 1]
        if self._num_chars < least:
            ends.append(least - longest - 1)
        return max(_CLOSED, min(ends) - self._num_chars)

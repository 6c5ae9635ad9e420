"""Tokens as text: a sequence's tokens as one text that knows where each token stands in it, and a few tokens as a
short quotation, or one of them as a literal. Knows token ids and their bytes; no blocks, no screen.

A token is bytes, not characters: an emoji may take four tokens, and then the one character belongs to all of them.
"""

from bisect import bisect_left, bisect_right
from codecs import getincrementaldecoder
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from pagedchat.chat.sanitize import drawable

UNKNOWN = "\ufffd".encode()
"""Stands for a token whose text has not been told."""

_NAMED = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_decoder = getincrementaldecoder("utf-8")


class SequenceText(NamedTuple):
    """A text and the characters of each of its tokens: token i has bytes of `text[starts[i]:ends[i]]`."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]

    def tokens_of(self, start: int, end: int) -> range:
        """The tokens that have bytes of `text[start:end]`."""
        if start >= end:
            return range(0)
        return range(bisect_right(self.ends, start), bisect_left(self.starts, end))

    def chars_of(self, first: int, last: int) -> tuple[int, int]:
        """The characters of tokens `first` to `last - 1`."""
        last = min(last, len(self.starts))
        return (self.starts[first], self.ends[last - 1]) if first < last else (0, 0)


def sequence_text(token_ids: Iterable[int], texts: Mapping[int, bytes]) -> SequenceText:
    """What the tokens say one after the other; bytes that are no UTF-8 read as U+FFFD."""
    pieces = [texts.get(token_id, UNKNOWN) for token_id in token_ids]
    joined = b"".join(pieces)
    if joined.isascii():
        ends = list(accumulate(map(len, pieces)))
        return SequenceText(joined.decode("ascii"), [0, *ends[:-1]] if ends else [], ends)
    return _decoded(pieces)


def _decoded(pieces: list[bytes]) -> SequenceText:
    decoder = _decoder("replace")
    parts, starts, ends = [], [], []
    length = 0
    for piece in pieces:
        starts.append(length)
        part = decoder.decode(piece)
        parts.append(part)
        length += len(part)
        ends.append(length + bool(decoder.getstate()[0]))
    parts.append(decoder.decode(b"", final=True))
    return SequenceText("".join(parts), starts, ends)


def quote(token_ids: Iterable[int], texts: Mapping[int, bytes], width: int, *, ascii_only: bool = False) -> str:
    """The tokens' text in quotation marks and at most `width` cells; a line end reads `¶`."""
    joined = b"".join([texts.get(token_id, UNKNOWN) for token_id in token_ids])
    text = drawable(joined.decode("utf-8", "replace")).replace("\n", "\\n" if ascii_only else "¶")
    room = max(0, width - 2)
    if cell_len(text) > room:
        mark = "." if ascii_only else "…"
        text = set_cell_size(text, max(0, room - 1)) + mark[:room]
    return f'"{text}"'


def quote_token(text: bytes) -> str:
    """`b" and"` -> `" and"`: what cannot be seen, or could command a terminal, is escaped.

    Bytes that are only a part of a character read `\\xe6`.
    """
    decoded = text.decode("utf-8", "surrogateescape")
    return '"' + "".join(map(_escape, decoded)) + '"'


def _escape(char: str) -> str:
    if char in _NAMED:
        return _NAMED[char]
    if "\udc80" <= char <= "\udcff":  # a byte that is no character of its own
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char if char.isprintable() and drawable(char) == char else char.encode("unicode_escape").decode("ascii")

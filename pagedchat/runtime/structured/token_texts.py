"""What single tokens say, as a library for forms has it. Knows no forms and no replies."""

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llguidance import LLTokenizer

_NEVER_BARE = frozenset('"\\\x7f') | frozenset(map(chr, range(0x20)))
"""What a text in JSON has only behind a backslash, or not at all."""
_AT_ONCE = 512
"""Tokens that are looked at before others may have their turn: half a millisecond."""
_MOST_CHARS = 255
"""Of tokens that count as plain."""


class TokenTexts:
    """Those of one vocabulary. To look at all of it takes about a microsecond for each token.

    Args:
        vocabulary: the library's.
    """

    def __init__(self, vocabulary: "LLTokenizer") -> None:
        self._vocabulary = vocabulary
        plain, self.most_bytes = bytearray(vocabulary.vocab_size), 0
        for token in range(vocabulary.vocab_size):
            said = self.of(token)
            if said is not None:
                plain[token] = _num_plain(said)
                self.most_bytes = max(self.most_bytes, len(said))
            if token % _AT_ONCE == 0:
                time.sleep(0)
        self.plain = bytes(plain)
        """Of each token how many characters it is, if these are whole and may stand for themselves in a text of
        JSON; 0 for any other."""

    def of(self, token: int) -> bytes | None:
        """Its bytes; None for one that stands for no text."""
        if self._vocabulary.is_special_token(token):
            return None
        said: bytes = self._vocabulary.decode_bytes([token])
        return None if said == b"<[%d]>" % token else said  # as the library writes what has no text


def _num_plain(said: bytes) -> int:
    try:
        text = said.decode("utf-8")
    except UnicodeDecodeError:
        return 0
    return len(text) if len(text) <= _MOST_CHARS and _NEVER_BARE.isdisjoint(text) else 0

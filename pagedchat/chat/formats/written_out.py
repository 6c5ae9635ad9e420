"""Text for files that others open: what terminals and browsers would obey, and what no eye sees, is written out."""

import re

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ufdd0-\ufdef\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f]"
)
_JOINS = frozenset("\u200c\u200d")
"""Without which some scripts, and families of emoji, fall apart; they change nothing else."""
_LINE_END = re.compile("\r\n|\r")


def written_out(text: str) -> str:
    """`text` with control characters as their pictures (`␛`), and others that are not seen as `<U+202E>`."""
    return _HIDDEN.sub(_picture, _LINE_END.sub("\n", text))


def _picture(match: re.Match[str]) -> str:
    char = match[0]
    number = ord(char)
    if char in _JOINS:
        return char
    if 0xD800 <= number <= 0xDFFF:
        return "\ufffd"
    if number < 0x20:
        return chr(0x2400 + number)
    return "\u2421" if number == 0x7F else f"<U+{number:04X}>"

"""Text for files that others open: what terminals and browsers would obey, and what no eye sees, is written out."""

import re

from pagedchat.chat.sanitize import spelled_out

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ufdd0-\ufdef\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f]"
)
_JOINS = frozenset("\u200c\u200d")
"""Without which some scripts, and families of emoji, fall apart; they change nothing else."""
_LINE_END = re.compile("\r\n|\r")


def written_out(text: str) -> str:
    """`text` with what is not seen spelled out, as a transcript has it: `\\x1b`, `\\u202e`."""
    return _HIDDEN.sub(_spelled, _LINE_END.sub("\n", text))


def _spelled(match: re.Match[str]) -> str:
    return match[0] if match[0] in _JOINS else spelled_out(match[0])

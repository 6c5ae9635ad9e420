"""Text that a model, a file or a clipboard brought, made safe to draw: it can never command the terminal.

What is kept is what people read. Escape sequences go as a whole, single control characters one by one, and so do
the invisible characters that reorder or hide text (Unicode TR36, "Trojan Source"). Only what is *drawn* or copied
passes through here; the turns themselves keep the model's exact text.

What is drawn must also take as many cells as the screen was laid out for, or it runs over its neighbours. Terminals
disagree about characters that change the width of others, so none of these is drawn.
"""

import json
import re
from functools import lru_cache
from unicodedata import category, combining, east_asian_width

TAB_SIZE = 4

_ESCAPE_SEQUENCE = re.compile(
    r"""
    (?:\x1b\[ | \x9b) [0-?]* [ -/]* [@-~]?                  # CSI: colours, cursor, modes
    | (?:\x1b[\]PX^_] | [\x9d\x90\x98\x9e\x9f])             # OSC, DCS, SOS, PM, APC: a string up to ST or BEL
      [^\x07\x1b\x9c]* (?:\x07 | \x1b\\ | \x9c)?
    | \x1b [ -/]* [0-~]?                                    # two-character sequences, and a lone escape
    """,
    re.VERBOSE,
)
_UNSAFE = re.compile(
    "["
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # C0 without tab and line ends, DEL, C1
    "\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"  # direction and invisible format marks
    "\U000e0000-\U000e007f"  # tag characters
    "]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED_IN_JSON = re.compile(f"{_UNSAFE.pattern}|{_SURROGATE.pattern}|[\u2028\u2029]")
_LINE_END = re.compile("\r\n|[\r\u0085\u2028\u2029]")
_NOTHING_TO_DO = re.compile("[\n\x20-\x7e]*")
_RESIZING = re.compile(
    "["
    "\u200d\ufe0e\ufe0f\U0001f3fb-\U0001f3ff"  # joiner, text or emoji, skin: as the terminal likes
    "\u00ad\u180e\ufff9-\ufffb\U0001d173-\U0001d17a"  # soft hyphen, separator, marks of annotations: none, or one
    "\u115f\u1160\u17b4\u17b5\u3164\uffa0"  # letters that stand for none
    "]"
)
_FLAG_LETTERS = {0x1F1E6 + index: chr(ord("A") + index) for index in range(26)}
"""Two of them are a flag of two cells, or two letters of one cell or two each."""
_IN_TWO_PARTS = {"\u0e33": "\u0e4d\u0e32", "\u0eb3": "\u0ecd\u0eb2"}
"""Thai and Lao vowels that are a mark on the letter before and a letter: some terminals put all of it there."""
_NEWER_EMOJI = re.compile(
    "[\U0001f6d8\U0001f6dc\U0001fa75-\U0001fa77\U0001fa87-\U0001fa8a\U0001fa8e\U0001fa8f\U0001faad-\U0001faaf"
    "\U0001fabb-\U0001fabf\U0001fac6\U0001fac8\U0001facd-\U0001facf\U0001fada-\U0001fadc\U0001fadf"
    "\U0001fae8-\U0001faea\U0001faef\U0001faf7\U0001faf8]"
)
"""Of Unicode 15 to 17, which an older Python does not know."""
_VISIBLE_FORMAT = re.compile("[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd]")
"""Signs before numbers and verses: format characters by name, but drawn in a cell."""
_UNKNOWN = "\ufffd"
MAX_MARKS = 5
"""On one letter; no script has more, and a heap of them covers the rows above."""


def terminal_json(value: object, indent: int | None = None) -> str:
    """JSON that means what it always means, with everything escaped in it that a terminal could obey."""
    return _ESCAPED_IN_JSON.sub(_json_escape, json.dumps(value, ensure_ascii=False, indent=indent))


def _json_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def sanitize(text: str) -> str:
    """`text` without anything a terminal could obey; line ends become `\\n`, tabs become spaces."""
    if _NOTHING_TO_DO.fullmatch(text):
        return text
    text = _LINE_END.sub("\n", text)
    text = _ESCAPE_SEQUENCE.sub("", text)
    text = _UNSAFE.sub("", text)
    text = _SURROGATE.sub("\ufffd", text)
    return _expand_tabs(text) if "\t" in text else text


def drawable(text: str) -> str:
    """`sanitize`d, and of characters that take the same cells on every terminal.

    Joiners and what else would change the width of another character are left out, so a family is drawn as its
    members; flags become letters, characters of a Unicode to come U+FFFD. Marks (accents, vowel signs) are a few on
    a letter: at the start of a line they would change the cell on their left, which may be somebody else's.

    NOTE: one kind is left of which terminals make one cell or none: vowel signs beside their letter (Hindi, Tamil),
    without which nobody could read those scripts.
    """
    text = sanitize(text)
    if text.isascii():
        return text
    changed = {ord(char): drawn for char in set(text) if (drawn := drawn_char(char)) != char}
    text = text.translate(changed) if changed else text
    marks = "".join(char for char in set(text) if is_mark(char))
    return re.sub(rf"(^|\s|[{marks}]{{{MAX_MARKS}}})[{marks}]+", r"\1", text) if marks else text


def one_line(text: str) -> str:
    """The same in one line, for titles and lists: every run of white space is one space."""
    return " ".join(drawable(text).split())


@lru_cache(1 << 14)
def drawn_char(char: str) -> str:
    """What stands for a character on the screen."""
    if _RESIZING.match(char):
        return ""
    if letter := _FLAG_LETTERS.get(ord(char)):
        return letter
    if parts := _IN_TWO_PARTS.get(char):
        return parts
    return _UNKNOWN if category(char) == "Cn" and not _NEWER_EMOJI.match(char) else char


@lru_cache(1 << 14)
def is_mark(char: str) -> bool:
    """Whether it takes no cell of its own: accents, vowel signs, later letters of a Korean syllable."""
    if _VISIBLE_FORMAT.match(char):
        return False
    later_letter = "\u1160" <= char <= "\u11ff" or "\ud7b0" <= char <= "\ud7fb"
    return later_letter or category(char) in ("Mn", "Mc", "Me", "Cf")


def is_unsafe(char: str) -> bool:
    """Whether a terminal could obey it, or hide what is beside it; half of a broken character counts as well."""
    return bool(_UNSAFE.match(char) or _SURROGATE.match(char)) and char not in "\u0085"


def spelled_out(char: str) -> str:
    """What is shown of a character that must not be drawn: `\\x1b`, `\\u202e`, `\\U000e0041`."""
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shown_safely(text: str) -> str:
    """As `sanitize`, but what a terminal could obey, or hide behind, is spelled out instead of left out."""
    if _NOTHING_TO_DO.fullmatch(text):
        return text
    text = _LINE_END.sub("\n", text)
    return sanitize(_UNSAFE.sub(lambda found: spelled_out(found[0]), text))


def _expand_tabs(text: str) -> str:
    return "\n".join(_expand_line(line) for line in text.split("\n"))


def _expand_line(line: str) -> str:
    """Tab stops count cells, not characters, so that columns line up behind wide characters too."""
    first, *rest = line.split("\t")
    for piece in rest:
        first += " " * (TAB_SIZE - num_cells(first) % TAB_SIZE) + piece
    return first


def num_cells(text: str) -> int:
    """Cells that tab stops are counted in."""
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)

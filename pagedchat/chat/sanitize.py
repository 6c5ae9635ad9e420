"""Text that a model, a file or a clipboard brought, made safe to draw: it can never command the terminal.

What is kept is what people read. Escape sequences go as a whole, single control characters one by one, and so do
the invisible characters that reorder or hide text (Unicode TR36, "Trojan Source"). Only what is *drawn* or copied
passes through here; the turns themselves keep the model's exact text.
"""

import json
import re
from unicodedata import combining, east_asian_width

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


def one_line(text: str) -> str:
    """The same in one line, for titles and lists: every run of white space is one space."""
    return " ".join(sanitize(text).split())


def _expand_tabs(text: str) -> str:
    return "\n".join(_expand_line(line) for line in text.split("\n"))


def _expand_line(line: str) -> str:
    """Tab stops count cells, not characters, so that columns line up behind wide characters too."""
    first, *rest = line.split("\t")
    for piece in rest:
        first += " " * (TAB_SIZE - _num_cells(first) % TAB_SIZE) + piece
    return first


def _num_cells(text: str) -> int:
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)

"""Numbers and labels as the inspector writes them, and its signs for a terminal that has only ASCII. Pure text."""

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from pagedchat.chat.sanitize import one_line
from pagedchat.view.sentences.glyphs import SIGNS

_SUPERSCRIPTS = str.maketrans("123", "¹²³")
MANY = 3
"""The largest number that every font has a raised sign for."""
_BARS = "░▒▓█"
_ASCII_BARS = ".:-=+*#"
_ROUNDING = 1e-9
"""The largest value gets the highest bar, whatever its last binary digit."""
SHOWN_IDS = 4
"""Block ids written out in one line before they are elided."""


def model_name(model: str) -> str:
    """The last part of a hub id or of a folder's path."""
    return one_line(model.rstrip("/\\").replace("\\", "/").rpartition("/")[2]) or "model"


def superscript(number: int) -> str:
    """2 -> `²`, and 4, which not every font has, -> `^4`."""
    return str(number).translate(_SUPERSCRIPTS) if number <= MANY else f"^{number}"


def fit(text: str, width: int) -> str:
    """Exactly `width` cells: padded, or cut with an ellipsis."""
    if cell_len(text) > width > 0:
        return set_cell_size(set_cell_size(text, width - 1).rstrip() + "…", width)
    return set_cell_size(text, max(0, width))


def short_label(label: str, width: int) -> str:
    """A chat's label in at most `width` cells; the end that tells a fork from its source is kept."""
    if cell_len(label) <= width:
        return label
    mark = label.find("»")
    tail = label[mark:] if mark >= 0 else ""
    room = width - cell_len(tail)
    return fit(label, room).rstrip() + tail if room > 1 else fit(label, width).rstrip()


def sparkline(values: Sequence[float], top: float, ascii_only: bool = False) -> str:
    """One bar a value, from 1 to `top`; nothing for 0."""
    if top <= 0:
        return " " * len(values)
    bars = _ASCII_BARS if ascii_only else _BARS
    last = len(bars) - 1
    scale = last / top
    return "".join(bars[min(last, int(value * scale + _ROUNDING))] if value > 0 else " " for value in values)


def filled_cells(share: float, cells: int) -> str:
    """A bar's filled part, to `share` of `cells` in halves of a cell; anything above 0 shows."""
    halves = round(min(1.0, max(0.0, share)) * cells * 2)
    if share > 0 and halves == 0:
        halves = 1
    full, part = divmod(halves, 2)
    return "█" * full + "▌" * part


def bar(share: float, cells: int) -> str:
    """A bar `cells` wide, filled to `share`."""
    return f"{filled_cells(share, cells):░<{cells}}"


def count(number: int, noun: str) -> str:
    """`1 block`, `2 blocks`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def block_words(block_ids: Sequence[int], prefix: str = "") -> str:
    """Block ids as the screen writes them, elided after a few."""
    shown = " ".join(f"{prefix}{block_id:03d}" for block_id in block_ids[:SHOWN_IDS])
    return shown + " …" * (len(block_ids) > SHOWN_IDS)


def milliseconds(seconds: float) -> str:
    """Two significant digits or so: `.2`, `3.1`, `42`."""
    value = seconds * 1e3
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}".removeprefix("0")


def cut(text: str, width: int) -> str:
    """At most `width` cells; the end gives way to `~`."""
    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "~"


def to_ascii(text: str) -> str:
    """The inspector's own signs written in ASCII; not for the text of models and chats, which is left as it is."""
    return text if text.isascii() else text.translate(SIGNS)

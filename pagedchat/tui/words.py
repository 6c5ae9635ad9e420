"""Numbers and labels as the inspector writes them. Pure text."""

from rich.cells import cell_len, set_cell_size

_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_BARS = "▁▂▃▄▅▆▇█"


def superscript(number: int) -> str:
    """12 -> `¹²`."""
    return str(number).translate(_SUPERSCRIPTS)


def fit(text: str, width: int) -> str:
    """Exactly `width` cells: padded, or cut with an ellipsis."""
    if cell_len(text) > width > 0:
        return set_cell_size(set_cell_size(text, width - 1).rstrip() + "…", width)
    return set_cell_size(text, max(0, width))


def short_label(label: str, width: int) -> str:
    """A chat's label in at most `width` cells; the end that tells a fork from its source is kept."""
    if cell_len(label) <= width:
        return label
    mark = label.find("⑂")
    tail = label[mark:] if mark >= 0 else ""
    room = width - cell_len(tail)
    return fit(label, room).rstrip() + tail if room > 1 else fit(label, width).rstrip()


def sparkline(values: list[int], top: int) -> str:
    """One bar a value, from 1 to `top`; nothing for 0."""
    if top <= 0:
        return " " * len(values)
    last = len(_BARS) - 1
    return "".join(_BARS[min(last, value * last // top)] if value > 0 else " " for value in values)

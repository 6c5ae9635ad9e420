"""Sizes in bytes, read and written the way people write them."""

import re

from pagedchat.errors import InvalidValueError

_UNITS = {
    "": 1, "b": 1,
    "k": 1024, "kb": 1000, "kib": 1024,
    "m": 1024**2, "mb": 1000**2, "mib": 1024**2,
    "g": 1024**3, "gb": 1000**3, "gib": 1024**3,
    "t": 1024**4, "tb": 1000**4, "tib": 1024**4,
}  # fmt: skip
_SIZE = re.compile(r"\s*(\d{1,20}(?:\.\d{1,20})?)\s*([A-Za-z]*)\s*")


def parse_size(text: str | int) -> int:
    """`"4GiB"`, `"512 MB"`, `"1.5g"` or a plain count -> bytes.

    Raises:
        InvalidValueError: not a size.
    """
    if isinstance(text, int):
        return text
    match = _SIZE.fullmatch(text) if isinstance(text, str) else None
    if match is None or match[2].lower() not in _UNITS:
        raise InvalidValueError(f"{text!r:.60} is not a size.", "Write it like 4GiB, 512MB or a number of bytes.")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def format_size(num_bytes: float) -> str:
    """Bytes -> `"13.5 MiB"`: three significant digits, binary units."""
    value = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} TiB"

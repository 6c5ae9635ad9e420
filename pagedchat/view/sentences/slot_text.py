"""A token's text as a literal in quotation marks: what cannot be seen, or could command a terminal, is escaped."""

from rich.cells import cell_len, set_cell_size

_NAMED = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def quote_token(text: bytes) -> str:
    """`b" and"` -> `" and"`; bytes that are only a part of a character read `\\xe6`."""
    decoded = text.decode("utf-8", "surrogateescape")
    return '"' + "".join(map(_escape, decoded)) + '"'


def cut(text: str, width: int) -> str:
    """At most `width` cells; the end gives way to `~`."""
    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "~"


def _escape(char: str) -> str:
    if char in _NAMED:
        return _NAMED[char]
    if "\udc80" <= char <= "\udcff":  # a byte that is no character of its own
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char if char.isprintable() else char.encode("unicode_escape").decode("ascii")

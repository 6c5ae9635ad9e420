"""What a server sent, taken apart without trust: every field may be missing, or of another type."""

from typing import Any


def text_at(value: Any, *path: str | int) -> str:
    """The text there; empty where there is none."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def number_at(value: Any, *path: str | int) -> int:
    """The whole number there that is not negative; 0 where there is none."""
    found = at(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 2**53 else 0


def at(value: Any, *path: str | int) -> Any:
    """What lies at the end of these names and places, of objects and mappings alike; None where nothing does."""
    for step in path:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        elif isinstance(value, dict):
            value = value.get(step)
        else:
            value = getattr(value, step, None)
    return value


class WholeCharacters:
    """Joins the halves of characters that JSON may bring in two pieces; a half that stays alone becomes U+FFFD."""

    def __init__(self) -> None:
        self._half = ""

    def feed(self, text: str) -> str:
        """The text so far that is whole."""
        text, self._half = self._half + text, ""
        if text.isascii():
            return text
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return _whole(text)

    def end(self) -> str:
        """What is left."""
        text, self._half = self._half, ""
        return _whole(text)


def _whole(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

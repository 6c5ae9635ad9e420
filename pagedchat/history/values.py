"""Values of the kind that is wanted, whatever comes out of a file that others may have written to."""


def text_of(value: object) -> str:
    """A text; nothing where there is none."""
    if isinstance(value, str):
        return value
    return "" if value is None else str(value)


def optional_text(value: object) -> str | None:
    """A text, or None."""
    return None if value is None else text_of(value)


def number_of(value: object) -> int:
    """A whole number; 0 where there is none."""
    return value if isinstance(value, int) else 0


def seconds_of(value: object) -> float:
    """A moment; 0 where there is none."""
    return float(value) if isinstance(value, int | float) else 0.0

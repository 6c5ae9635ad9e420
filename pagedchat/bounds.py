"""What numbers and lists from outside may be: kinds and ranges, and one sentence for all that is something else.

Checked where a setting, a config or a prompt is made, so that nothing behind it has to ask again. Knows no setting:
whoever has some keeps a table of these. Numbers and arrays of numpy and tensors count as what they hold; none of
these libraries is imported for it.
"""

import math
import operator
from dataclasses import dataclass
from numbers import Real
from typing import Any

from pagedchat.errors import InvalidValueError

INT32_MAX = 2**31 - 1
LEAST_ON_WIRE, MOST_ON_WIRE = -(2**63), 2**64 - 1
"""Whole numbers that a message between processes carries."""
_MOST_SHOWN = 60
"""Characters of a value in a sentence."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Whole numbers from `low` to `high`."""

    low: int
    high: int
    also: str = ""
    """What people should know of some of them, as `0 for all tokens`."""

    def check(self, name: str, value: object) -> int:
        """The value, as Python's own number.

        Raises:
            InvalidValueError: it is something else; the hint names the range.
        """
        number = as_whole(value)
        if number is None or not self.low <= number <= self.high:
            also = f", {self.also}" if self.also else ""
            raise refused(name, value, f"a whole number from {self.low} to {self.high}{also}")
        return number

    def check_all(self, name: str, values: object) -> list[int]:
        """Several of them: a list of Python's own numbers.

        Raises:
            InvalidValueError: it is no list, or has something else in it.
        """
        numbers = as_whole_numbers(values)
        if numbers is None or (numbers and not self.low <= min(numbers) <= max(numbers) <= self.high):
            raise refused(name, values, f"whole numbers from {self.low} to {self.high}")
        return numbers


@dataclass(frozen=True, slots=True)
class Number:
    """Finite numbers from `low` to `high`."""

    low: float
    high: float
    above: bool = False
    """Whether `low` itself is left out."""

    def check(self, name: str, value: object) -> float:
        """The value, as Python's own number.

        Raises:
            InvalidValueError: it is something else; the hint names the range.
        """
        number = as_real(value)
        if number is None or not self.low <= number <= self.high or (self.above and number == self.low):
            start = f"above {self.low:g}, up to" if self.above else f"from {self.low:g} to"
            raise refused(name, value, f"a number {start} {self.high:g}")
        return number


def check_flag(name: str, value: object) -> bool:
    """True or false.

    Raises:
        InvalidValueError: it is something else.
    """
    if isinstance(value, bool):
        return value
    raise refused(name, value, "true or false")


def check_text(name: str, value: object) -> str:
    """Text that can be written down: not empty, and no half of a character in it.

    Raises:
        InvalidValueError: it is something else.
    """
    if isinstance(value, str) and value and is_unicode(value):
        return value
    raise refused(name, value, "a text that is not empty, in valid Unicode")


def check_texts(name: str, values: object) -> list[str]:
    """Several of them; one may stand alone.

    Raises:
        InvalidValueError: it is something else.
    """
    texts = [values] if isinstance(values, str) else as_list(values)
    if texts is not None and all(isinstance(text, str) and text and is_unicode(text) for text in texts):
        return texts
    raise refused(name, values, "strings that are not empty, in valid Unicode")


def refused(name: str, value: object, expected: str) -> InvalidValueError:
    """The error for a value that is not what it must be."""
    return InvalidValueError(f"{name} is {shown(value)}.", f"It must be {expected}.")


# --- what a value is --------------------------------------------------------------------------------


def as_whole(value: object) -> int | None:
    """A whole number as Python's own; None for anything else, `True` and `1.0` among it."""
    if type(value) is int:
        return value
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]  # whatever cannot is refused by it
    except Exception:  # an array has it too, and raises an error of its own
        return None


def as_real(value: object) -> float | None:
    """A number as Python's own; None for anything else, `True` among it."""
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def as_whole_numbers(values: object) -> list[int] | None:
    """A new list of whole numbers, in one pass where they are Python's own; None for anything else."""
    items = as_list(values)
    if items is None or set(map(type, items)) <= {int}:
        return items
    numbers = [number for item in items if (number := as_whole(item)) is not None]
    return numbers if len(numbers) == len(items) else None


def as_list(values: object) -> list[Any] | None:
    """A new list of what a list, tuple, set, range, array or tensor holds; None for anything else."""
    if isinstance(values, list | tuple | set | frozenset | range):
        return list(values)
    try:
        held = values.tolist()  # type: ignore[attr-defined]  # whatever has none is refused by it
    except Exception:  # a tensor without contents has it too, and raises an error of its own
        return None
    return held if isinstance(held, list) else None


def is_unicode(text: str) -> bool:
    """Whether every character is a whole one; `"\\ud800"`, as broken file names and JSON have it, is not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(value: object) -> str:
    """The value in a few words, as a sentence can hold them."""
    try:
        text = repr(value)
    except Exception:  # a number of more than 4300 digits has none, nor have some objects
        return f"a value of type {type(value).__name__} that is too large to show"
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."

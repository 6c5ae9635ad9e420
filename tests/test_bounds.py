"""What is a number, a list or a text, whoever made it."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from pagedchat.bounds import Number, Whole, as_list, as_real, as_whole, as_whole_numbers, check_text, shown
from pagedchat.errors import InvalidValueError


class Strange:
    """Neither a number nor anything else, and not even to be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    def tolist(self) -> list[int]:
        raise RuntimeError("no")

    def __index__(self) -> int:
        raise RuntimeError("no")


NOTHING: list[Any] = [None, "1", b"1", 1.0, True, [1], {1: 2}, Strange(), Decimal(1), np.bool_(True), np.array([1])]


@pytest.mark.parametrize("value", [1, np.int8(1), np.uint64(1), torch.tensor(1), np.array(1)])
def test_whole_numbers_of_any_make(value: Any) -> None:
    assert as_whole(value) == 1
    assert type(as_whole(value)) is int


@pytest.mark.parametrize("value", NOTHING, ids=lambda value: type(value).__name__)
def test_what_is_no_whole_number(value: Any) -> None:
    assert as_whole(value) is None
    assert as_whole_numbers([1, value]) is None
    with pytest.raises(InvalidValueError, match="It must be a whole number from 0 to 3"):
        Whole(0, 3).check("x", value)


@pytest.mark.parametrize("value", [1, 1.0, np.float16(1), np.int64(1), Fraction(1)])
def test_numbers_of_any_make(value: Any) -> None:
    assert (as_real(value), type(as_real(value))) == (1.0, float)


@pytest.mark.parametrize("value", [None, "1", True, [1.0], 1j, Strange()], ids=lambda value: type(value).__name__)
def test_what_is_no_number(value: Any) -> None:
    with pytest.raises(InvalidValueError, match="It must be a number from 0 to 3"):
        Number(0, 3).check("x", value)


@pytest.mark.parametrize("values", [[1, 2], (1, 2), range(1, 3), {1, 2}, np.array([1, 2]), torch.tensor([1, 2])])
def test_lists_of_any_make(values: Any) -> None:
    numbers = as_whole_numbers(values)
    assert numbers == [1, 2]
    assert {type(number) for number in numbers} == {int}
    assert numbers is not values


NO_LISTS: list[Any] = [None, 1, "ab", b"ab", {1: 2}, np.array(1), torch.empty(2, device="meta"), Strange()]


@pytest.mark.parametrize("values", NO_LISTS, ids=lambda value: type(value).__name__)
def test_what_is_no_list(values: Any) -> None:
    assert as_list(values) is None


def test_ends_of_a_range_are_in_it_and_what_is_above_its_low_end() -> None:
    assert [Whole(1, 3).check("x", value) for value in (1, 3)] == [1, 3]
    assert [Number(0, 1).check("x", value) for value in (0, 1)] == [0, 1]
    with pytest.raises(InvalidValueError, match="above 0, up to 1"):
        Number(0, 1, above=True).check("x", 0)


def test_text_is_whole_characters() -> None:
    assert check_text("x", "größer 🙂") == "größer 🙂"
    for wrong in ("", "a\ud800", None, b"a"):
        with pytest.raises(InvalidValueError, match="valid Unicode"):
            check_text("x", wrong)


def test_no_value_makes_a_long_sentence() -> None:
    assert shown("short") == "'short'"
    for value in ("a" * 10**6, [1] * 10**6, 10**4000, 10**5000, Strange()):
        assert len(shown(value)) <= 60

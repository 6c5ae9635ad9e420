"""Thresholds of the garbage collector are raised while an engine runs, and are what they were afterwards."""

import gc

import pytest

from pagedchat.rare_collections import rare_collections


def test_thresholds_are_raised_inside_and_put_back() -> None:
    before = gc.get_threshold()
    with rare_collections():
        assert all(inside > outside for inside, outside in zip(gc.get_threshold(), before, strict=True))
    assert gc.get_threshold() == before


def test_the_last_to_leave_puts_them_back() -> None:
    before = gc.get_threshold()
    first, second = rare_collections(), rare_collections()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold() > before
    second.__exit__(None, None, None)
    assert gc.get_threshold() == before


def test_an_error_puts_them_back_too() -> None:
    before = gc.get_threshold()
    with pytest.raises(RuntimeError), rare_collections():
        raise RuntimeError
    assert gc.get_threshold() == before


def test_higher_ones_and_none_at_all_are_left_alone() -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(0, 1_000, 1_000)
        with rare_collections():
            assert gc.get_threshold() == (0, 1_000, 1_000)
    finally:
        gc.set_threshold(*before)

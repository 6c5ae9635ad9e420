"""How values on a command line are read: numbers, lists of names, files to be written. Imports nothing heavy.

Each is an argparse `type`: a value that it cannot read raises `argparse.ArgumentTypeError`, in words.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from pagedchat.bounds import shown

MOST = 10_000_000
"""Of anything that is counted; far more than a benchmark can do with."""


def count(text: str) -> int:
    """A number of at least 1."""
    if text.isdecimal() and 1 <= int(text) <= MOST:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MOST}")


def counts(text: str) -> list[int]:
    """Several of them, with commas between."""
    return [count(number.strip()) for number in text.split(",")]


def names(text: str) -> list[str]:
    """Names with commas between."""
    return [name.strip() for name in text.split(",")]


def some_of(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    """A reader of such names that refuses all but the known ones."""

    def read(text: str) -> list[str]:
        given = names(text)
        if unknown := [name for name in given if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
        return given

    return read


def new_file(text: str) -> Path:
    """A file to write at the end of a long run: that it can be written is found out before."""
    path = Path(text)
    try:
        possible = not path.is_dir() and path.absolute().parent.is_dir()
    except OSError:  # a name that is too long
        possible = False
    if not possible:
        raise argparse.ArgumentTypeError(f"{shown(text)} cannot be written: make its folder first")
    return path

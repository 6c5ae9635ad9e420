"""The options of `pagedchat bench ui`. Knows names, types and help; measures nothing and imports nothing heavy."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagedchat.cli.options import Parser

    Kinds = argparse._SubParsersAction[Parser]

SECTIONS = ("frames", "keys", "slowdown")


def add_ui_bench(kinds: "Kinds", new_file: Callable[[str], Path]) -> None:
    """Add `ui` to the benchmarks; `new_file` reads the name of a file that can be written."""
    parser = kinds.add_parser(
        "ui",
        help="what a frame costs, how soon a key is on the screen, how much the inspector slows the engine; "
        "needs no GPU and no model",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--only",
        type=_sections,
        default=list(SECTIONS),
        metavar="NAMES",
        help=f"some of {','.join(SECTIONS)} (all)",
    )
    parser.add_argument("--chats", type=_count, default=8, metavar="N", help="chats that are streamed into (8)")
    parser.add_argument(
        "--rate", type=_count, default=30, metavar="N", help="tokens a second of each, for frames and keys (30)"
    )
    parser.add_argument("--num-blocks", type=_count, default=32_000, metavar="N", help="blocks in the pool (32000)")
    parser.add_argument("--frames", type=_count, default=200, metavar="N", help="frames of each kind (200)")
    parser.add_argument("--keys", type=_count, default=300, metavar="N", help="keys that are pressed (300)")
    parser.add_argument("--seconds", type=_count, default=4, metavar="N", help="of each run for the slowdown (4)")
    parser.add_argument("--rounds", type=_count, default=5, metavar="N", help="runs of each kind, in turns (5)")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the figures and the environment")


def _count(text: str) -> int:
    if text.isdecimal() and int(text) >= 1:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")


def _sections(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in SECTIONS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(SECTIONS)}")
    return names

"""The options of `pagedchat bench step`. Knows names, types and help; imports nothing heavy."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagedchat.cli.options import Parser

    Kinds = argparse._SubParsersAction[Parser]


def add_step_bench(kinds: "Kinds", new_file: Callable[[str], Path], count: Callable[[str], int]) -> None:
    """Add `step` to the benchmarks.

    Args:
        kinds: of benchmarks.
        new_file: reads the name of a file that can be written.
        count: reads a number of at least 1.
    """
    parser = kinds.add_parser(
        "step",
        help="where the time of a decode step goes, by kernel on the GPU and by phase on the host; needs a GPU",
        allow_abbrev=False,
    )
    parser.add_argument("--model", metavar="DIR", help="a checkpoint (an opt-125m shape with random weights)")
    parser.add_argument("--dtype", default="float16", metavar="NAME", help="float16, bfloat16 or float32 (float16)")
    parser.add_argument(
        "--batch",
        type=_counts(count),
        default=[1, 64, 256],
        metavar="NUMBERS",
        help="chats that decode together (1,64,256)",
    )
    parser.add_argument("--context", type=count, default=300, metavar="N", help="tokens of each chat (300)")
    parser.add_argument("--steps", type=count, default=200, metavar="N", help="timed steps (200); 20 are profiled")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the figures and the environment")


def _counts(count: Callable[[str], int]) -> Callable[[str], list[int]]:
    return lambda text: [count(number.strip()) for number in text.split(",")]

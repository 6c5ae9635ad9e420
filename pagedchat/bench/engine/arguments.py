"""The options of `pagedchat bench engine`. Knows names, types and help; imports nothing heavy."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagedchat.cli.options import Parser

    Kinds = argparse._SubParsersAction[Parser]

SECTIONS = ("start", "decode", "first", "prefix", "llama", "same")
PEERS = ("transformers",)
REPEATS = {"cpu": 3, "cuda": 5}
"""Runs of each row by device, if nothing is said."""


def add_engine_bench(kinds: "Kinds", new_file: Callable[[str], Path], count: Callable[[str], int]) -> None:
    """Add `engine` to the benchmarks.

    Args:
        kinds: of benchmarks.
        new_file: reads the name of a file that can be written.
        count: reads a number of at least 1.
    """
    parser = kinds.add_parser(
        "engine",
        help="tokens a second, first tokens and start-up against transformers and vLLM; with --device cpu also the "
        "host time of a step and the time to the first frame",
        allow_abbrev=False,
    )
    parser.add_argument("--model", metavar="DIR", help="a checkpoint (an opt-125m shape with random weights)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where everything runs (cpu)")
    parser.add_argument(
        "--dtype",
        default="auto",
        metavar="NAME",
        help="auto, float32, float16 or bfloat16 (auto: float16 on a GPU)",
    )
    parser.add_argument(
        "--repeats", type=count, metavar="N", help="runs of each row; the median counts (3, on a GPU 5)"
    )
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the figures and the environment")
    parser.add_argument("--threads", type=count, metavar="N", help="on a CPU: threads of torch (its own choice)")
    parser.add_argument(
        "--only", type=_some_of(SECTIONS), metavar="NAMES", help=f"on a GPU: some of {','.join(SECTIONS)} (all)"
    )
    parser.add_argument(
        "--against",
        type=_some_of(PEERS),
        default=[],
        metavar="NAMES",
        help=f"on a GPU: what to run beside ours in the same run, of {','.join(PEERS)} (nothing)",
    )
    parser.add_argument("--markdown", action="store_true", help="on a GPU: print the tables as Markdown")


def _some_of(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    def read(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",")]
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
        return names

    return read

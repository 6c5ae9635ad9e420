"""The options of `pagedchat replay`. Reads no trace and imports nothing heavy."""

import argparse
from pathlib import Path


def add_replay_options(parser: argparse.ArgumentParser) -> None:
    """Which recording, where to begin, or what to print of it."""
    parser.set_defaults(command="replay")
    parser.add_argument("file", type=Path, metavar="FILE", help="written by --trace FILE or /trace save FILE")
    parser.add_argument("--step", type=_step, metavar="N", help="begin at this step (at the end)")
    parser.add_argument("--ascii", action="store_true", help="draw with ASCII characters only")
    parser.add_argument("--summary", action="store_true", help="print what is in it and show nothing")
    parser.add_argument("--json", action="store_true", help="with --summary: print one JSON object")


def _step(text: str) -> int:
    if text.isdecimal():
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not the number of a step")

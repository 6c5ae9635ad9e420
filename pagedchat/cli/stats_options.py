"""The options of `pagedchat stats`. Asks nobody and imports nothing heavy."""

import argparse


def add_stats_options(parser: argparse.ArgumentParser) -> None:
    """Which running pagedchat to ask, and how to print what it says."""
    parser.set_defaults(command="stats")
    parser.add_argument("--pid", type=_pid, metavar="N", help="ask this process, where several are running")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _pid(text: str) -> int:
    if text.isdecimal() and int(text) >= 1:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not the number of a process")

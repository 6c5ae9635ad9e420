"""The options of `pagedchat doctor`. Knows names and help; looks at no GPU and imports nothing heavy."""

import argparse

from pagedchat.jit.architecture import ARCHITECTURES


def add_doctor_options(parser: argparse.ArgumentParser) -> None:
    """What to look at, and how to print it."""
    parser.add_argument(
        "--compile", action="store_true", help="compile every kernel for every architecture; needs no GPU"
    )
    parser.add_argument(
        "--arch",
        action="append",
        choices=ARCHITECTURES,
        metavar="NAME",
        help=f"with --compile, for this one only; may be repeated ({', '.join(ARCHITECTURES)})",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")

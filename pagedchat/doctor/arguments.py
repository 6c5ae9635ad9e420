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
        help="with --compile, for this one only, and may be repeated; with --model, on a GPU of this one "
        f"({', '.join(ARCHITECTURES)})",
    )
    parser.add_argument(
        "--model",
        metavar="ID|DIR",
        help="which steps 1, 8, 64 and 256 chats and a prompt take with this model, by which kernels, what a "
        "library does of them, and why; reads its config.json alone",
    )
    parser.add_argument(
        "--batch-invariant", action="store_true", help="with --model, the steps of replies that no company changes"
    )
    parser.add_argument(
        "--quantize", metavar="FORM", help="with --model, the steps of weights in int8, int4 or fp8 on a GPU"
    )
    parser.add_argument(
        "--kv-cache-dtype", metavar="TYPE", help="with --model, the steps over a cache of fp8 or int8"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")

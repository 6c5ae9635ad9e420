"""The options of `pagedchat bench kernels`. Knows names, types and help; imports nothing heavy."""

import argparse

from pagedchat.bench.kernels.choices import PEERS, SECTIONS
from pagedchat.bench.readers import names, new_file

KERNELS_HELP = "the CUDA kernels against the memory's bandwidth and against their peers; needs a GPU"


def add_kernels_options(parser: argparse.ArgumentParser) -> None:
    """Which kernels, beside whom."""
    parser.add_argument("--only", type=names, metavar="NAMES", help=f"some of {','.join(SECTIONS)} (all)")
    parser.add_argument(
        "--peers",
        type=names,
        metavar="NAMES",
        help=f"what to run beside ours: some of {','.join(PEERS)} (those that are installed)",
    )
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the figures and the environment")

"""The options of `pagedchat bench cpu`. Knows names, types and help; imports nothing heavy."""

import argparse

from pagedchat.bench.engine.arguments import SHAPE_NAMES
from pagedchat.bench.readers import count, counts, new_file

CPU_HELP = "where the time of a decode step on a CPU goes, by kernel, and how long the modules take for the same"


def add_cpu_options(parser: argparse.ArgumentParser) -> None:
    """Which model, how many chats, how many steps."""
    parser.add_argument("--model", metavar="DIR", help="a checkpoint (an opt-125m shape with random weights)")
    parser.add_argument(
        "--shape", choices=SHAPE_NAMES, help="without --model: another shape, with random weights, to be measured"
    )
    parser.add_argument("--dtype", default="auto", metavar="NAME", help="auto, float32 or bfloat16 (auto)")
    parser.add_argument(
        "--quantize", default="none", metavar="FORM", help="bring weights into int8 or int4 first (none)"
    )
    parser.add_argument(
        "--batch", type=counts, default=[1, 8], metavar="NUMBERS", help="chats that decode together (1,8)"
    )
    parser.add_argument(
        "--rows", type=counts, default=[1], metavar="NUMBERS", help="rows of a chat: a token, and drafted ones (1)"
    )
    parser.add_argument("--context", type=count, default=128, metavar="N", help="tokens of each chat (128)")
    parser.add_argument("--steps", type=count, default=20, metavar="N", help="timed steps of each kind (20)")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the figures and the environment")

"""The options of `pagedchat bench drafts`. Knows names, types and help; imports nothing heavy."""

import argparse

from pagedchat.bench.engine.arguments import SHAPE_NAMES
from pagedchat.bench.readers import count, counts, new_file

DRAFTS_HELP = "tokens a second with drafts and without, by prompt lookup and by draft models"
HOW = ("lookup", "model")


def add_drafts_options(parser: argparse.ArgumentParser) -> None:
    """Which drafts, on what, how many chats, how often."""
    parser.add_argument(
        "--how", action="append", choices=HOW, metavar="HOW", help="lookup or model; may stand twice (both)"
    )
    parser.add_argument(
        "--shape", choices=SHAPE_NAMES, help="for lookup: another shape than opt-125m's, with random weights"
    )
    parser.add_argument(
        "--quantize", default="none", metavar="FORM", help="for lookup: weights in int8 or int4 (none)"
    )
    parser.add_argument("--device", default="auto", metavar="NAME", help="auto, cpu or cuda (auto)")
    parser.add_argument("--dtype", default="auto", metavar="NAME", help="auto, float32, float16 or bfloat16 (auto)")
    parser.add_argument("--batch", type=counts, default=[1, 8], metavar="NUMBERS", help="chats at a time (1,8)")
    parser.add_argument("--prompt", type=count, default=256, metavar="N", help="tokens of a prompt (256)")
    parser.add_argument("--tokens", type=count, default=200, metavar="N", help="tokens of a reply (200)")
    parser.add_argument("--runs", type=count, default=5, metavar="N", help="of each kind, in turns (5)")
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="count the seconds of the processor: for a CPU that other work shares, with one thread",
    )
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the figures and the environment")

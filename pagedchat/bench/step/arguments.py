"""The options of `pagedchat bench step`. Knows names, types and help; imports nothing heavy."""

import argparse

from pagedchat.bench.engine.arguments import MIXTURE_NAMES, SHAPE_NAMES
from pagedchat.bench.readers import count, counts, new_file

STEP_HELP = "where the time of a decode step goes, by kernel on the GPU and by phase on the host; needs a GPU"


def add_step_options(parser: argparse.ArgumentParser) -> None:
    """Which model, how many chats, how many steps."""
    parser.add_argument("--model", metavar="DIR", help="a checkpoint (an opt-125m shape with random weights)")
    parser.add_argument(
        "--shape",
        choices=(*SHAPE_NAMES, *MIXTURE_NAMES),
        help="without --model: another shape, with random weights, to be measured",
    )
    parser.add_argument("--dtype", default="float16", metavar="NAME", help="float16, bfloat16 or float32 (float16)")
    parser.add_argument("--quantize", default="none", metavar="FORM", help="weights in int8, int4 or fp8 (none)")
    parser.add_argument(
        "--kv-cache-dtype", default="auto", metavar="TYPE", help="keys and values in fp8 or int8 (auto)"
    )
    parser.add_argument(
        "--tensor-parallel-size", type=count, default=1, metavar="N", help="GPUs over which it is cut (1)"
    )
    parser.add_argument(
        "--batch",
        type=counts,
        default=[1, 64, 256],
        metavar="NUMBERS",
        help="chats that decode together (1,64,256)",
    )
    parser.add_argument("--context", type=count, default=300, metavar="N", help="tokens of each chat (300)")
    parser.add_argument("--steps", type=count, default=200, metavar="N", help="timed steps (200); 20 are profiled")
    parser.add_argument(
        "--temperature", type=float, default=0.0, metavar="T", help="tokens are drawn; 0: the most likely ones (0)"
    )
    parser.add_argument("--top-k", type=int, default=0, metavar="N", help="of the N most likely ones (0: of all)")
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P", help="of those with this share (1)")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the figures and the environment")

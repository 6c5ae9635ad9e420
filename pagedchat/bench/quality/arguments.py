"""The options of `pagedchat bench quality`. Knows names, types and help; imports nothing heavy."""

import argparse

from pagedchat.bench.readers import count, new_file
from pagedchat.config import DEFAULT_MODEL

QUALITY_HELP = "what weights and caches of few bits cost: the perplexity of a text with and without them, on a CPU"


def add_quality_options(parser: argparse.ArgumentParser) -> None:
    """Which model, which text, in which forms."""
    parser.add_argument(
        "--model",
        default=DEFAULT_MODEL,
        metavar="ID|DIR|FILE",
        help=f"hub id, folder or GGUF file ({DEFAULT_MODEL}, in the box)",
    )
    parser.add_argument("--quantize", metavar="FORM", help="int8 or int4 beside none (both)")
    parser.add_argument("--kv-cache-dtype", metavar="TYPE", help="keys and values in fp8 or int8 too (as they are)")
    parser.add_argument(
        "--text", metavar="FILE", help="a text in UTF-8 (one that the model in the box has not seen)"
    )
    parser.add_argument(
        "--window", type=count, default=512, metavar="N", help="tokens that are read together (512)"
    )
    parser.add_argument("--tokens", type=count, metavar="N", help="read no more than the first N (all)")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the figures and the environment")

"""The options of `pagedchat bench ranks`. Knows names, types and help; imports nothing heavy."""

import argparse

from pagedchat.bench.readers import count, counts, new_file, some_of

RANKS_HELP = "a model over 1, 2 and 4 GPUs of this machine, and their sums beside those of NCCL and torch"
SECTIONS = ("sums", "speed")


def add_ranks_options(parser: argparse.ArgumentParser) -> None:
    """Which model, over how many ranks, for how many chats."""
    parser.add_argument(
        "--model", metavar="ID|DIR", help="a checkpoint (Llama-3.1-8B's shape; on a CPU the one in the box)"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda", help="where the ranks are (cuda)")
    parser.add_argument("--dtype", default="auto", metavar="NAME", help="auto, float32, float16 or bfloat16 (auto)")
    parser.add_argument(
        "--ranks", type=counts, metavar="N,N", help="how many (of 1, 2 and 4 those that there are GPUs for)"
    )
    parser.add_argument("--chats", type=counts, default=[1, 64], metavar="N,N", help="at a time (1,64)")
    parser.add_argument("--prompt-tokens", type=count, default=128, metavar="N", help="of each prompt (128)")
    parser.add_argument(
        "--new-tokens", type=count, default=128, metavar="N", help="of each reply, 2 at least (128)"
    )
    parser.add_argument("--repeats", type=count, default=3, metavar="N", help="runs; the median counts (3)")
    parser.add_argument(
        "--only", type=some_of(SECTIONS), metavar="NAME,NAME", help=f"of {', '.join(SECTIONS)} these alone (all)"
    )
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the figures and the environment")

"""The options of `pagedchat bench serve`. Knows names, types and help; imports nothing heavy."""

import argparse

from pagedchat.bench.readers import count, counts, new_file

SERVE_HELP = "streams of many clients of a server, beside the same prompts in one process without one"


def add_serve_options(parser: argparse.ArgumentParser) -> None:
    """Which model, how many clients, how long."""
    parser.add_argument("--model", metavar="ID|DIR", help="a checkpoint (the model in the box)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the model runs (cpu)")
    parser.add_argument("--dtype", default="auto", metavar="NAME", help="auto, float32, float16 or bfloat16 (auto)")
    parser.add_argument("--clients", type=counts, default=[1, 64], metavar="N,N", help="streams at a time (1,64)")
    parser.add_argument("--prompt-tokens", type=count, default=32, metavar="N", help="of each prompt (32)")
    parser.add_argument("--new-tokens", type=count, default=128, metavar="N", help="of each reply (128)")
    parser.add_argument("--repeats", type=count, default=3, metavar="N", help="runs; the median counts (3)")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the figures and the environment")

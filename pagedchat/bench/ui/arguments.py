"""The options of `pagedchat bench ui`. Knows names, types and help; measures nothing and imports nothing heavy."""

import argparse

from pagedchat.bench.readers import count, new_file, some_of

SECTIONS = ("frames", "keys", "transcripts", "slowdown", "history", "attach")
UI_HELP = (
    "what a frame costs, how soon a key is on the screen, what long chats cost, how much the inspector slows the "
    "engine, how long a large history takes to be opened and searched, how soon a terminal that attaches to a "
    "server shows all; needs no GPU and no model; with --device cuda how much it slows a model of opt-125m's shape "
    "there, with --model how soon a key is on the screen while that one answers on the CPU"
)
GPU_SECTIONS = ("slowdown",)
"""With a GPU, if nothing is said: the others have no use for one."""
MODEL_SECTIONS = ("keys",)
"""Those that a model on the CPU may answer in."""


def add_ui_options(parser: argparse.ArgumentParser) -> None:
    """Which sections, how large, how long."""
    parser.add_argument(
        "--only",
        type=some_of(SECTIONS),
        metavar="NAMES",
        help=f"some of {','.join(SECTIONS)} (all; with --device cuda slowdown)",
    )
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="for the slowdown: cpu, where a sleep stands for the model, or cuda, where a real one runs (cpu)",
    )
    parser.add_argument(
        "--model", metavar="ID|DIR|FILE", help="for keys: on a CPU, as fast as it can (an engine that recites)"
    )
    parser.add_argument(
        "--quantize", choices=("auto", "none", "int8", "int4"), default="auto", help="of that model (auto)"
    )
    parser.add_argument(
        "--steps", type=count, default=4000, metavar="N", help="of each run for the slowdown with cuda (4000)"
    )
    parser.add_argument("--chats", type=count, default=8, metavar="N", help="chats that are streamed into (8)")
    parser.add_argument(
        "--rate", type=count, default=30, metavar="N", help="tokens a second of each, for frames and keys (30)"
    )
    parser.add_argument("--num-blocks", type=count, default=32_000, metavar="N", help="blocks in the pool (32000)")
    parser.add_argument("--frames", type=count, default=200, metavar="N", help="frames of each kind (200)")
    parser.add_argument("--keys", type=count, default=300, metavar="N", help="keys that are pressed (300)")
    parser.add_argument(
        "--history-chats", type=count, default=10_000, metavar="N", help="chats in the history (10000)"
    )
    parser.add_argument(
        "--seconds",
        type=count,
        default=4,
        metavar="N",
        help="of each run for the slowdown, and of each share of a core (4)",
    )
    parser.add_argument("--rounds", type=count, default=5, metavar="N", help="runs of each kind, in turns (5)")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the figures and the environment")

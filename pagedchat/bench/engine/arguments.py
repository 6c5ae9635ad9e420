"""The options of `pagedchat bench engine`. Knows names, types and help; imports nothing heavy."""

import argparse

from pagedchat.bench.readers import count, new_file, some_of

SECTIONS = ("start", "stutter", "decode", "first", "prefix", "beams", "client", "shapes", "same")
CPU_SECTIONS = ("stutter", "beams", "client")
"""Those that can be asked for by name on a CPU."""
SHAPE_NAMES = ("qwen2.5-0.5b", "llama-3.2-1b", "qwen3-1.7b", "llama-3.1-8b")
MIXTURE_NAMES = ("qwen3-30b-a3b-4-layers",)
"""Of mixtures of experts, for `bench step` alone."""
PEERS = ("transformers",)
REPEATS = {"cpu": 3, "cuda": 5}
"""Runs of each row by device, if nothing is said."""


ENGINE_HELP = (
    "tokens a second, first tokens and start-up against transformers and vLLM; with --device cpu also the "
    "host time of a step and the time to the first frame"
)


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Which model, where, against whom, how often."""
    parser.add_argument("--model", metavar="DIR", help="a checkpoint (an opt-125m shape with random weights)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where everything runs (cpu)")
    parser.add_argument(
        "--dtype",
        default="auto",
        metavar="NAME",
        help="auto, float32, float16 or bfloat16 (auto: float16 on a GPU)",
    )
    parser.add_argument(
        "--repeats", type=count, metavar="N", help="runs of each row; the median counts (3, on a GPU 5)"
    )
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the figures and the environment")
    parser.add_argument("--threads", type=count, metavar="N", help="on a CPU: threads of torch (its own choice)")
    parser.add_argument(
        "--only",
        type=some_of(SECTIONS),
        metavar="NAMES",
        help=f"some of {','.join(SECTIONS)} (all); on a CPU stutter, beams, client, or unless asked for the others",
    )
    parser.add_argument(
        "--shapes",
        type=some_of(SHAPE_NAMES),
        default=list(SHAPE_NAMES),
        metavar="NAMES",
        help=f"on a GPU: which of the larger shapes, some of {','.join(SHAPE_NAMES)} (all)",
    )
    parser.add_argument(
        "--against",
        type=some_of(PEERS),
        default=[],
        metavar="NAMES",
        help=f"on a GPU: what to run beside ours in the same run, of {','.join(PEERS)} (nothing)",
    )
    parser.add_argument("--markdown", action="store_true", help="on a GPU: print the tables as Markdown")

"""`pagedchat models`: prints the models that this machine has, as `--model` takes them. Loads none.

The names are text, never escapes.
"""

import argparse

from pagedchat.chat.sanitize import one_line, terminal_json
from pagedchat.local_models import local_models
from pagedchat.units import format_size


def add_models_options(parser: argparse.ArgumentParser) -> None:
    """How to print them."""
    parser.add_argument("--json", action="store_true", help="print one JSON array")


def run_models(args: argparse.Namespace) -> int:
    """Look and print; returns the exit code."""
    found = local_models()
    if args.json:
        print(terminal_json([model._asdict() for model in found], indent=2))
        return 0
    width = max((len(one_line(model.name)) for model in found), default=0)
    for model in found:
        print(f"{one_line(model.name):<{width}}  {model.place}, {format_size(model.num_bytes)}")
    return 0

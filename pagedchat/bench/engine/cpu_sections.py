"""`pagedchat bench engine --device cpu --only ...`: sections of the run on a GPU that a CPU has too."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from pagedchat.bench.engine.arguments import CPU_SECTIONS
from pagedchat.bench.engine.stutter import measure_stutter, stutter_table
from pagedchat.bench.made_up import SHAPE, given_or_made_up
from pagedchat.bench.table import environment, say, show
from pagedchat.errors import InvalidValueError


def run_cpu_sections(args: argparse.Namespace) -> int:
    """Measure, print and write.

    Raises:
        InvalidValueError: a section that a CPU does not have.
        PagedChatError: what the engine refuses.
    """
    missing = [name for name in args.only if name not in CPU_SECTIONS]
    if missing:
        raise InvalidValueError(
            f"--only: {missing[0]!r} is measured on a GPU alone.",
            f"Add --device cuda, or choose {', '.join(CPU_SECTIONS)}.",
        )
    with given_or_made_up(args.model, say) as folder:
        figures = measure_stutter(Path(folder), "cpu", args.dtype, args.repeats, say)
    table = stutter_table(figures)
    show(f"{args.model or SHAPE}, {args.dtype}\n\n{table.as_markdown() if args.markdown else table.as_text()}")
    if args.json is not None:
        found = {"environment": environment(), "stutter": [asdict(figure) for figure in figures]}
        args.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0

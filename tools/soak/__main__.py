"""Large loads and long runs of the real engine, and what they leave behind.

    python -m tools.soak queue                      256 chats at once on a pool for 20
    python -m tools.soak prompts                    10,000 prompts on 16 blocks
    python -m tools.soak run                        six hours' worth of steps of both processes, with the screens
    python -m tools.soak engine --device cuda       an hour's worth of steps of an engine in this process

Exit code 1 if something is lost, held or still growing.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pagedchat.errors import IntegrityError
from tools.soak import engine_run, memory, prompts, queued
from tools.soak.tiny import OPT_125M_NAME, opt_125m, tiny_checkpoint

STEPS_OF_SIX_HOURS = 6 * 3_600 * 20
"""Somebody reads along at 20 tokens a second, and a token is a step. For the first two hours Textual's caches fill,
all of them bounded."""
STEPS_OF_AN_HOUR = 3_600 * 100
"""Nobody reads along: 100 steps a second."""


def main(argv: list[str] | None = None) -> int:
    """Exit code 1 if something is lost, held or still growing."""
    args = _parse(argv)
    try:
        with _model(args) as model:
            wrong: list[str] = args.carry_out(args, model)
    except IntegrityError as error:
        wrong = [str(error)]
    for sentence in wrong:
        print(f"WRONG: {sentence}")
    return bool(wrong)


@contextmanager
def _model(args: argparse.Namespace) -> Iterator[str]:
    if args.model == OPT_125M_NAME:
        with opt_125m() as name:
            yield name
    elif args.model is not None:
        yield args.model
    else:
        with tiny_checkpoint() as name:
            yield name


# --- what can be run --------------------------------------------------------------------------------


def _queue(args: argparse.Namespace, model: str) -> list[str]:
    for mode in queued.MODES:
        outcome = queued.run_queue(model, args.chats, args.at_once, mode)
        print("\n".join(outcome.lines()))
    return []


def _prompts(args: argparse.Namespace, model: str) -> list[str]:
    outcome = prompts.run_prompts(model, args.prompts, args.blocks)
    print("\n".join(outcome.lines()))
    return [f"{name} grew from {sizes[0]} to {sizes[1]} entries." for name, sizes in outcome.grown.items()]


def _run(args: argparse.Namespace, model: str) -> list[str]:
    from tools.soak import run  # noqa: PLC0415 - loads Textual, which a machine that only has a GPU may lack

    outcome = run.run_both(model, args.steps, seed=args.seed, num_blocks=args.blocks, max_seconds=args.seconds)
    print("\n".join(outcome.lines()))
    memory.show(outcome.courses)
    return [*outcome.wrong, *memory.too_steep(outcome.courses, args.most)]


def _engine(args: argparse.Namespace, model: str) -> list[str]:
    outcome = engine_run.run_engine(
        model,
        args.device,
        args.steps,
        max_seconds=args.seconds,
        num_blocks=args.blocks,
        num_chats=args.chats,
        mode=args.mode,
        kind=args.kv_cache_dtype,
    )
    print("\n".join(outcome.lines()))
    memory.show(outcome.courses)
    return memory.too_steep(outcome.courses, args.most)


# --- the command line -------------------------------------------------------------------------------


def _parse(argv: list[str] | None) -> argparse.Namespace:
    description, _, rest = str(__doc__).partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m tools.soak",
        description=description,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True)
    queue = _command(commands, "queue", _queue)
    queue.add_argument("--chats", type=int, default=256)
    queue.add_argument("--at-once", type=int, default=20, help="chats that the pool holds, about")
    many = _command(commands, "prompts", _prompts)
    many.add_argument("--prompts", type=int, default=10_000)
    many.add_argument("--blocks", type=int, default=16)
    both = _command(commands, "run", _run)
    _add_length(both, STEPS_OF_SIX_HOURS)
    both.add_argument("--blocks", type=int, default=160)
    both.add_argument("--seed", type=int, default=0, help="of what the user does")
    engine = _command(commands, "engine", _engine)
    _add_length(engine, STEPS_OF_AN_HOUR)
    engine.add_argument("--blocks", type=int, default=80)
    engine.add_argument("--chats", type=int, default=4)
    engine.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    engine.add_argument("--mode", choices=queued.MODES, default="recompute")
    engine.add_argument("--kv-cache-dtype", choices=("auto", "fp8", "int8"), default="auto")
    return parser.parse_args(argv)


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, carry_out: object
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name)
    parser.set_defaults(carry_out=carry_out, device="cpu")
    parser.add_argument("--model", help=f"a folder, a hub id, or {OPT_125M_NAME}; a tiny one by default")
    return parser


def _add_length(parser: argparse.ArgumentParser, steps: int) -> None:
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="and for how long at most")
    parser.add_argument("--most", type=float, default=4.0, metavar="MIB",
                        help="growth allowed in the second half, in 100,000 steps")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())

"""How much an open inspector slows the engine: steps a second with nobody drawing, with the chats, with both.

The kinds of runs take turns, so that whatever else the machine does meets all of them; medians are compared.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Literal, get_args

from pagedchat.bench.ui.running_app import running_app

Kind = Literal["no screen", "chats", "chats and inspector"]
KINDS: tuple[Kind, ...] = get_args(Kind)
STEP_SECONDS = 0.003
"""A step of opt-125m on a data-centre GPU, without a CUDA graph."""
SETTLE = 1.0
_REPLY_TOKENS = 20_000
"""No reply ends within a run: an engine that waits for the next prompt is idle, not slow."""
MAX_CHATS = 4
"""With more, fewer panes are in sight once the inspector stands beside them, and it would seem to be free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowdownResult:
    """Medians by kind of run."""

    num_chats: int
    num_blocks: int
    rounds: int
    seconds: int | None = None
    """Of each run."""
    num_steps: int | None = None
    """Likewise, where a real model runs as fast as it can: the same steps in all runs."""
    runs: dict[Kind, list[float]]
    """Steps a second of each run."""
    steps_per_second: dict[Kind, float]
    cpu_share: dict[Kind, float]
    """Of one core, by the program's own process."""

    def slowdown(self, kind: Kind, against: Kind) -> float:
        """The share of its speed that the engine loses; negative where it gains."""
        return 1 - self.steps_per_second[kind] / self.steps_per_second[against]


def measure_slowdown(
    num_chats: int, num_blocks: int, rounds: int, seconds: int, say: Callable[[str], None]
) -> SlowdownResult:
    """Run every kind `rounds` times for `seconds` each, with at most `MAX_CHATS` chats."""
    num_chats = min(num_chats, MAX_CHATS)
    run = partial(_run, num_chats, num_blocks, seconds)
    return take_turns(run, num_chats, num_blocks, rounds, say, seconds=seconds)


def take_turns(
    run: Callable[[Kind], tuple[float, float]],
    num_chats: int,
    num_blocks: int,
    rounds: int,
    say: Callable[[str], None],
    *,
    seconds: int | None = None,
    num_steps: int | None = None,
) -> SlowdownResult:
    """Every kind `rounds` times.

    Args:
        run: a run of a kind: steps a second, and the program's share of a core.
        num_chats, num_blocks, seconds, num_steps: see the fields of the result.
        rounds: runs of each kind.
        say: told of progress.
    """
    runs: dict[Kind, list[float]] = {kind: [] for kind in KINDS}
    shares: dict[Kind, list[float]] = {kind: [] for kind in KINDS}
    for number in range(rounds):
        say(f"steps a second, round {number + 1} of {rounds}")
        for kind in KINDS if number % 2 == 0 else reversed(KINDS):
            speed, share = run(kind)
            runs[kind].append(round(speed, 2))
            shares[kind].append(share)
    return SlowdownResult(
        num_chats=num_chats,
        num_blocks=num_blocks,
        rounds=rounds,
        seconds=seconds,
        num_steps=num_steps,
        runs=runs,
        steps_per_second={kind: round(median(values), 2) for kind, values in runs.items()},
        cpu_share={kind: round(median(values), 3) for kind, values in shares.items()},
    )


def _run(num_chats: int, num_blocks: int, seconds: float, kind: Kind) -> tuple[float, float]:
    """Steps a second, and the program's share of a core."""
    with running_app(num_chats, num_blocks, STEP_SECONDS, _REPLY_TOKENS, screen=kind != "no screen") as app:
        app.wait_for_steps()
        if kind == "chats and inspector":
            app.open_inspector()
        app.terminal.read_for(SETTLE)
        start = app.sample()
        app.terminal.read_for(seconds)
        end = app.sample()
    wall = end.time - start.time
    return (end.steps - start.steps) / wall, (end.cpu - start.cpu) / wall

"""The host's side of decode steps: an engine that notes the time of each step, and what the phases of one took."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from pagedchat.engine.core import EngineCore
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.output import ModelRunner
from pagedchat.events import StepReport, Timings
from pagedchat.step_batch import DecodeBatch

ENGINE_PHASES = ("schedule", "launch", "copy", "wait", "sample", "update")


@dataclass(frozen=True, slots=True)
class TimedStep:
    """When a step began and ended, by `time.perf_counter`, and what it says of its phases."""

    began: float
    ended: float
    num_decodes: int
    num_prefills: int
    """Prompt tokens."""
    timings: Timings


class TimedCore(EngineCore):
    """An engine that keeps the times of its steps.

    Args:
        limits, runner: as for `EngineCore`.
    """

    def __init__(self, limits: EngineLimits, runner: ModelRunner) -> None:
        super().__init__(limits, runner)
        self.steps: list[TimedStep] = []

    def step(self) -> StepReport:
        """See `EngineCore`."""
        began = time.perf_counter()
        report = super().step()
        ended = time.perf_counter()
        is_plain = type(report.batch) is DecodeBatch
        num_prefills = 0 if is_plain else sum([entry.num_prefill for entry in report.batch])
        self.steps.append(TimedStep(began, ended, len(report.batch), num_prefills, report.timings))
        return report


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTimes:
    """Medians of decode steps, in microseconds."""

    num_steps: int
    step_us: float
    """From one step's beginning to the next one's."""
    phases_us: dict[str, float]
    """`ENGINE_PHASES`, then "report" (the rest of the engine) and "caller" (what lies between two steps)."""

    @property
    def busy_us(self) -> float:
        """All but the wait for the device."""
        return sum(us for phase, us in self.phases_us.items() if phase != "wait")


def read_host(steps: Sequence[TimedStep], num_chats: int) -> HostTimes | None:
    """Sum up the steps in which all chats decode and nothing else is done; None if there are none.

    Args:
        steps: in order.
        num_chats: that decode together.
    """
    pairs = [
        (one, after)
        for one, after in pairwise(steps)
        if one.num_decodes == after.num_decodes == num_chats and not one.num_prefills and not after.num_prefills
    ]
    if not pairs:
        return None
    rows = [_phases(one, after) for one, after in pairs]
    return HostTimes(
        num_steps=len(pairs),
        step_us=1e6 * median(after.began - one.began for one, after in pairs),
        phases_us={phase: 1e6 * median(row[phase] for row in rows) for phase in rows[0]},
    )


def _phases(one: TimedStep, after: TimedStep) -> dict[str, float]:
    told = one.timings
    seconds = dict(
        zip(
            ENGINE_PHASES,
            (told.schedule, told.launch, told.copy, told.forward, told.sample, told.update),
            strict=True,
        )
    )
    whole = one.ended - one.began
    return {**seconds, "report": whole - sum(seconds.values()), "caller": after.began - one.ended}

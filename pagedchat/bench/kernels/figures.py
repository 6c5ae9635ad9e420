"""One measurement: what runs, what it moves, what came out."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from pagedchat.bench.kernels.bandwidth import Limits
from pagedchat.bench.kernels.timing import Call, Timing, time_host, time_in_graph

T = TypeVar("T")

OURS = "pagedchat"
MAX_ERROR = 1e-2
"""A result further off than this is not rounding but wrong, and its time means nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One way to do the work of a shape."""

    name: str
    prepare: Callable[[], Sequence[Call]]
    """Makes one call per input set; what it does (plans, other layouts of the inputs) is not timed."""
    check: Callable[[Sequence[Call]], float]
    """Runs the first of these calls and gives its relative error."""
    measure: Callable[[Sequence[Call]], Timing] = time_in_graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of a shape that all its contenders do."""

    section: str
    shape: str
    moved_bytes: int = 0
    """What has to cross the memory (or link) whose bandwidth is `limit_gb_s`."""
    limit_gb_s: float = 0.0
    flops: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What came out for one contender at one shape; all None but `failed` where it could not run."""

    section: str
    shape: str
    name: str
    us: float | None = None
    us_min: float | None = None
    us_max: float | None = None
    gb_s: float | None = None
    percent_of_limit: float | None = None
    tflop_s: float | None = None
    error: float | None = None
    """`‖result - reference‖ / ‖reference‖` against float64; 0 for an exact copy."""
    host_us: float | None = None
    """Until one eager call returns; only of our own ops."""
    failed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What every section needs: the limits of this machine, the peers to run, where to tell of progress."""

    limits: Limits
    peers: frozenset[str]
    say: Callable[[str], None]

    def peers_of(self, makers: Mapping[str, Callable[[T], list[Contender]]], inputs: T) -> list[Contender]:
        """The contenders that the chosen ones of these peers make of the inputs."""
        chosen = [make(inputs) for peer, make in makers.items() if peer in self.peers]
        return [contender for contenders in chosen for contender in contenders]

    def run(self, work: Work, contenders: Sequence[Contender]) -> list[Figure]:
        """Measure one after another; each gives its memory back before the next begins."""
        figures = []
        for contender in contenders:
            figure = measure(work, contender)
            self.say(summary(figure))
            figures.append(figure)
            torch.cuda.empty_cache()
        return figures


def measure(work: Work, contender: Contender) -> Figure:
    """Check and time one contender; that it cannot run here is a result as well."""
    figure = Figure(section=work.section, shape=work.shape, name=contender.name)
    try:
        return _measured(figure, work, contender)
    except Exception as error:  # a peer may raise anything, and the others have to go on
        return replace(figure, failed=f"{type(error).__name__}: {error}".replace("\n", " ")[:300])


def _measured(figure: Figure, work: Work, contender: Contender) -> Figure:
    calls = contender.prepare()
    error = contender.check(calls)
    if not error <= MAX_ERROR:  # NaN is not
        return replace(
            figure, error=error if math.isfinite(error) else None, failed=f"wrong result, error {error:.1e}"
        )
    timing = contender.measure(calls)
    gb_s = work.moved_bytes / timing.us / 1e3 if work.moved_bytes else None
    return replace(
        figure,
        us=timing.us,
        us_min=timing.us_min,
        us_max=timing.us_max,
        gb_s=gb_s,
        percent_of_limit=100 * gb_s / work.limit_gb_s if gb_s and work.limit_gb_s else None,
        tflop_s=work.flops / timing.us / 1e6 if work.flops else None,
        error=error,
        host_us=time_host(calls) if contender.name == OURS else None,
    )


def relative_error(result: torch.Tensor, reference: torch.Tensor) -> float:
    """`‖result - reference‖ / ‖reference‖` in float64; NaN when anything in `result` is."""
    difference = result.double() - reference.double()
    return float(difference.norm() / reference.double().norm())


def copy_error(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """0 where every result is bit for bit what it should be, else infinity."""
    return 0.0 if all(torch.equal(result, expected) for result, expected in pairs) else math.inf


def summary(figure: Figure) -> str:
    """One line about a figure."""
    words = [f"{figure.section} {figure.shape} {figure.name}:"]
    if figure.failed is not None:
        return " ".join([*words, figure.failed])
    for value, unit in (
        (figure.us, "{:.2f} us"),
        (figure.gb_s, "{:.0f} GB/s"),
        (figure.percent_of_limit, "{:.0f} %"),
        (figure.tflop_s, "{:.0f} TFLOP/s"),
        (figure.error, "error {:.1e}"),
        (figure.host_us, "host {:.1f} us"),
    ):
        if value is not None:
            words.append(unit.format(value))
    return " ".join(words)

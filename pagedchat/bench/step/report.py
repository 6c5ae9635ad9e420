"""A step as tables: a column for each number of chats. Measures nothing."""

from collections.abc import Sequence

from pagedchat.bench.kernels.report import Table
from pagedchat.bench.step.measure import StepFigure
from pagedchat.bench.step.products import ProductShare
from pagedchat.bench.step.trace import StepTrace

_NOTHING = "–"


def gpu_table(figures: Sequence[StepFigure]) -> Table:
    """Microseconds and launches by kind of kernel; the longest first, as in the last column."""
    traces = [figure.gpu for figure in figures]
    kinds = dict.fromkeys(share.kind for trace in reversed(traces) if trace for share in trace.kinds)
    rows = [(kind, *(_share(trace, kind) for trace in traces)) for kind in kinds]
    rows += [
        (title, *(_NOTHING if trace is None else f"{getattr(trace, field):.1f}" for trace in traces))
        for title, field in _SUMS
    ]
    header = ("us a step, traced (launches)", *_chats(figures))
    return Table("On the GPU, by kind of kernel", header, tuple(rows))


def products_table(figures: Sequence[StepFigure], copy_gb_s: float) -> Table | None:
    """How fast the weights of each product are read; None where no step's products are told apart.

    Args:
        figures: of steps.
        copy_gb_s: at which this memory is copied.
    """
    found = [
        {} if figure.gpu is None else {share.name: share for share in figure.gpu.products} for figure in figures
    ]
    names = dict.fromkeys(name for shares in found for name in shares)
    if not names:
        return None
    rows = tuple((name, *(_rate(shares.get(name), copy_gb_s) for shares in found)) for name in names)
    header = ("us a step: GB/s of weights, % of a copy", *_chats(figures))
    return Table(f"Products, beside a copy of {copy_gb_s:.0f} GB/s", header, rows)


def _rate(share: ProductShare | None, copy_gb_s: float) -> str:
    if share is None:
        return _NOTHING
    return f"{share.us:.1f}: {share.gb_s:.0f}, {100 * share.gb_s / copy_gb_s:.0f} %"


def host_table(figures: Sequence[StepFigure]) -> Table:
    """Microseconds by phase."""
    hosts = [figure.host for figure in figures]
    rows = [(phase, *(f"{host.phases_us[phase]:.1f}" for host in hosts)) for phase in hosts[0].phases_us]
    rows.append(("host without the wait", *(f"{host.busy_us:.1f}" for host in hosts)))
    rows.append(("whole step", *(f"{host.step_us:.1f}" for host in hosts)))
    return Table("On the host, by phase", ("us a step, medians, not traced", *_chats(figures)), tuple(rows))


_SUMS = (
    ("all kernels", "busy_us"),
    ("gaps between them", "gaps_us"),
    ("idle between steps", "idle_us"),
    ("step to step", "period_us"),
    ("idle between steps, %", "idle_percent"),
)


def _share(trace: StepTrace | None, kind: str) -> str:
    found = next((share for share in trace.kinds if share.kind == kind), None) if trace else None
    return _NOTHING if found is None else f"{found.us:.1f} ({found.count:.0f})"


def _chats(figures: Sequence[StepFigure]) -> list[str]:
    return [f"{figure.num_chats} {'chat' if figure.num_chats == 1 else 'chats'}" for figure in figures]

"""How much memory a process takes in the course of a run, and whether it goes on growing."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import psutil

from pagedchat.errors import IntegrityError
from pagedchat.units import format_size

PER_STEPS = 100_000
"""Slopes are told for so many steps."""
SHARES = (0.0, 0.1, 0.5, 1.0)
"""Of a run, at which figures are told."""
MIB = 1024**2


@dataclass(slots=True)
class Course:
    """One quantity, as it was after so and so many steps."""

    name: str
    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    """In bytes."""

    def add(self, step: int, value: float) -> None:
        """Looked at once more."""
        self.steps.append(step)
        self.values.append(value)

    def at(self, share: float) -> float:
        """What it was after this share of all steps."""
        wanted = self.steps[0] + share * (self.steps[-1] - self.steps[0])
        nearest = min(range(len(self.steps)), key=lambda index: abs(self.steps[index] - wanted))
        return self.values[nearest]

    def slope(self, since: float = 0.5) -> float:
        """Growth in `PER_STEPS` steps: the straight line of least squares through what came after a share of the
        run; 0 for less than three values."""
        first = self.steps[0] + since * (self.steps[-1] - self.steps[0])
        points = [point for point in zip(self.steps, self.values, strict=True) if point[0] >= first]
        mean_step = sum(step for step, _ in points) / len(points)
        mean = sum(value for _, value in points) / len(points)
        spread = sum((step - mean_step) ** 2 for step, _ in points)
        if len(points) < 3 or not spread:
            return 0.0
        return PER_STEPS * sum((step - mean_step) * (value - mean) for step, value in points) / spread

    def row(self) -> str:
        """Its figures, under those of `HEAD`."""
        sizes = "".join(f"{format_size(self.at(share)):>12}" for share in SHARES)
        return f"{self.name:<24}{sizes}{format_size(max(self.values)):>12}{self.slope() / MIB:>+15.3f}"


HEAD = f"{'':<24}{'start':>12}{'10 %':>12}{'50 %':>12}{'end':>12}{'most':>12}{'MiB/100k steps':>15}"


def show(courses: Sequence[Course]) -> None:
    """Print them as a table."""
    print(HEAD)
    for course in courses:
        print(course.row())


def too_steep(courses: Sequence[Course], most_mib: float) -> list[str]:
    """What still grew in the second half of a run, by more than this in `PER_STEPS` steps: in sentences."""
    return [
        f"{course.name} grew by {course.slope() / MIB:.2f} MiB in {PER_STEPS:,} steps; {most_mib:g} are allowed."
        for course in courses
        if course.slope() > most_mib * MIB
    ]


def resident(pid: int) -> int:
    """Bytes of memory that a process and those that it started have together; 0 where it is gone."""
    try:
        process = psutil.Process(pid)
        return sum(each.memory_info().rss for each in [process, *process.children(recursive=True)])
    except psutil.NoSuchProcess:
        return 0


@dataclass(frozen=True, slots=True)
class Handles:
    """What a process holds besides memory."""

    files: int
    threads: int
    processes: int
    """That it started."""


def handles(pid: int) -> Handles:
    """As they are now."""
    process = psutil.Process(pid)
    return Handles(process.num_fds(), process.num_threads(), len(process.children(recursive=True)))


def middle(values: Sequence[float]) -> float:
    """The median of at least one value."""
    return sorted(values)[len(values) // 2]


def no_blocks_left(in_use: int, host_in_use: int, sequences: int) -> None:
    """All requests are over: nothing may be held.

    Raises:
        IntegrityError: something is.
    """
    if in_use or host_in_use or sequences:
        raise IntegrityError(
            f"{in_use} blocks and {host_in_use} host blocks are in use by {sequences} sequences, though all is over"
        )

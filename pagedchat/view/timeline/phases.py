"""Where a step's time went, phase by phase, in a step's own order; in words and cells. Pure."""

from typing import NamedTuple

from rich.cells import cell_len

from pagedchat.events import Timings
from pagedchat.view.sentences.words import milliseconds

PHASES = ("schedule", "draft", "copy", "launch", "forward", "attention", "products", "sample", "update")
"""Every name that a phase can have."""
MIN_PHASE = 5e-5
"""Seconds below which a phase is not worth a word."""


class Phase(NamedTuple):
    """A part of a step."""

    name: str
    """One of `PHASES`."""
    seconds: float


def step_phases(timings: Timings) -> list[Phase]:
    """The phases, which add up to `timings.total`.

    The forward pass is told as attention and matrix products, or as one where attention was not measured.
    """
    if timings.attention > 0:
        products = max(0.0, timings.forward - timings.attention)
        forward = [Phase("attention", timings.forward - products), Phase("products", products)]
    else:
        forward = [Phase("forward", timings.forward)]
    before = [Phase("schedule", timings.schedule)]
    if timings.draft > 0:
        before.append(Phase("draft", timings.draft))
    return [
        *before, Phase("copy", timings.copy), Phase("launch", timings.launch), *forward,
        Phase("sample", timings.sample), Phase("update", timings.update),
    ]  # fmt: skip


def phase_words(phase: Phase) -> str:
    """`attention .9`."""
    return f"{phase.name} {milliseconds(phase.seconds)}"


def phase_cells(phases: list[Phase], width: int) -> list[int]:
    """How many of `width` cells each phase gets: in proportion, and together exactly `width`."""
    total = sum(phase.seconds for phase in phases)
    if total <= 0 or width <= 0:
        return [0] * len(phases)
    ends, so_far = [], 0.0
    for phase in phases:
        so_far += phase.seconds
        ends.append(round(so_far / total * width))
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def fitting_phases(phases: list[Phase], width: int) -> list[Phase]:
    """The phases whose words fit into `width` cells, in their order; the shortest ones are left out first."""
    kept = [phase for phase in phases if phase.seconds >= MIN_PHASE]
    while kept and sum(cell_len(phase_words(phase)) + 4 for phase in kept) - 2 > width:
        kept.remove(min(kept, key=lambda phase: phase.seconds))
    return kept

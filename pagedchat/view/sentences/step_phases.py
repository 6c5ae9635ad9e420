"""Where a step's time went, phase by phase, in the order in which a step goes through them. Pure."""

from typing import NamedTuple

from pagedchat.events import Timings

PHASES = ("schedule", "copy", "launch", "forward", "attention", "products", "sample", "update")
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
    return [
        Phase("schedule", timings.schedule), Phase("copy", timings.copy), Phase("launch", timings.launch), *forward,
        Phase("sample", timings.sample), Phase("update", timings.update),
    ]  # fmt: skip

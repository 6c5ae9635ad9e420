"""Models, and what drafts for them: pairs that can be had on the spot, without a hub and without training.

How often a small trained model agrees with a large one cannot be made up. So there are the two ends, a model that
drafts for itself and one with no more than some of its layers, of the model in the box, which is trained; and pairs
of OPT-125m's shape, whose later layers add a share of what they would, so that a draft model of its first two
agrees about as often as good draft models do, at the speed of that shape.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from pagedchat import bundled
from pagedchat.bench.random_checkpoint import LARGE_STD, OPT_125M, write_checkpoint
from pagedchat.bench.shallow_checkpoint import dampen, write_shallow

_OPT_LAYERS = 2
"""Of the draft model of OPT-125m's shape, which has twelve."""


class Pair(NamedTuple):
    """A model and its draft model, and what they are, in words."""

    name: str
    model: str
    draft: str


def _in_the_box(folder: Path) -> Pair:
    return Pair("the model in the box, by itself", bundled.NAME, bundled.NAME)


def _shallow(layers: list[int]) -> Callable[[Path], Pair]:
    def make(folder: Path) -> Pair:
        write_shallow(bundled.folder(), folder, layers)
        return Pair(f"the model in the box, by {len(layers)} of its 6 layers", bundled.NAME, str(folder))

    return make


def _opt(share: float) -> Callable[[Path], Pair]:
    def make(folder: Path) -> Pair:
        model, draft = folder / "model", folder / "draft"
        for each in (model, draft):
            each.mkdir()
        write_checkpoint(model, OPT_125M, torch.float32, torch.device("cpu"), std=LARGE_STD)
        dampen(model, _OPT_LAYERS, share)
        write_shallow(model, draft, list(range(_OPT_LAYERS)))
        return Pair(f"OPT-125m's shape, by 2 of its 12 layers, the others at {share:g}", str(model), str(draft))

    return make


PAIRS: list[Callable[[Path], Pair]] = [
    _in_the_box,
    _shallow([0, 1, 4, 5]),
    _shallow([0, 5]),
    _opt(0.05),
    _opt(0.5),
    _opt(1.0),
]
"""Each is made in an empty folder."""

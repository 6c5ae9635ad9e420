"""Models, and what drafts for them: pairs that can be had on the spot, without a hub and without training.

How often a small trained model agrees with a large one cannot be made up. So there are the two ends, a model that
drafts for itself and one with no more than some of its layers, of the model in the box, which is trained; and pairs
with random weights, of OPT-125m's width and twice its depth, whose later layers add a share of what they would, so
that a draft model of the first two agrees about as often as good draft models do, at an eighth of the time.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pagedchat import bundled
from pagedchat.bench.random_checkpoint import LARGE_STD, OPT_125M, write_checkpoint
from pagedchat.bench.shallow_checkpoint import dampen, write_shallow

DEEP: dict[str, Any] = {**OPT_125M, "num_hidden_layers": 24, "vocab_size": 8192}
"""176 million parameters; with the first two layers alone 22."""
_FIRST_LAYERS = 2


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


def _deep(share: float) -> Callable[[Path], Pair]:
    def make(folder: Path) -> Pair:
        model, draft = folder / "model", folder / "draft"
        for each in (model, draft):
            each.mkdir()
        write_checkpoint(model, DEEP, torch.float32, torch.device("cpu"), std=LARGE_STD)
        dampen(model, _FIRST_LAYERS, share)
        write_shallow(model, draft, list(range(_FIRST_LAYERS)))
        return Pair(f"24 layers, by the first 2, the others at {share:g}", str(model), str(draft))

    return make


PAIRS: list[Callable[[Path], Pair]] = [
    _in_the_box,
    _shallow([0, 1, 4, 5]),
    _shallow([0, 5]),
    _deep(0.01),
    _deep(0.03),
    _deep(1.0),
]
"""Each is made in an empty folder."""

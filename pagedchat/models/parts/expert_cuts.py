"""Which part of the tensors of a mixture of experts goes to a rank: a part of the middle of each expert. The router
and the gate of the shared expert are whole everywhere, so that all ranks send a token to the same experts.
"""

from collections.abc import Iterator

from pagedchat.layers.experts import MixtureConfig
from pagedchat.models.checkpoint_layout import MERGED, CheckpointLayout
from pagedchat.models.parts.cut import NOTHING, Cut, Nothing, by_inputs, by_outputs, evenly, side_by_side

Named = Iterator[tuple[str, Cut | Nothing]]


def expert_cuts(layout: CheckpointLayout, own: MixtureConfig, whole: MixtureConfig, rank: int) -> Named:
    """Of a layer, by the rest of their names.

    Args:
        layout: of the checkpoint.
        own, whole: the mixture as the rank has it, and as the model has it.
        rank: which one.
    """
    if layout.merged_experts:
        yield from _in_turns(own, whole, rank)
        return
    middle = evenly(0, own.width, whole.width, rank)
    for names in layout.expert_names("", whole.num_experts):
        yield from _gated(names, middle, rank)
    rows, columns = evenly(1, own.width, whole.width, rank), evenly(2, own.width, whole.width, rank)
    if layout.stacked:
        gate, up, down, together = (f"{name}.weight" for name in layout.stacked_names(""))
        yield from {gate: rows, up: rows, down: columns, together: side_by_side(rows)}.items()
        gate, up, down, _ = (f"{name}.bias" for name in layout.stacked_names(""))
        yield from {gate: rows, up: rows}.items()
        if rank:
            yield down, NOTHING
    yield f"{MERGED}.gate_up_proj", side_by_side(rows)
    yield f"{MERGED}.down_proj", columns
    if own.shared_width is not None and whole.shared_width is not None:
        shared = evenly(0, own.shared_width, whole.shared_width, rank)
        yield from _gated(layout.shared_names(""), shared, rank)


def _gated(names: tuple[str, str, str], middle: Cut, rank: int) -> Named:
    gate, up, down = names
    yield from by_outputs(gate, middle)
    yield from by_outputs(up, middle)
    yield from by_inputs(down, middle, rank)


def _in_turns(own: MixtureConfig, whole: MixtureConfig, rank: int) -> Named:
    """Of tensors that have a row for each input, in which gates and values take turns."""
    yield f"{MERGED}.gate_up_proj", evenly(2, 2 * own.width, 2 * whole.width, rank)
    yield f"{MERGED}.gate_up_proj_bias", evenly(1, 2 * own.width, 2 * whole.width, rank)
    yield f"{MERGED}.down_proj", evenly(1, own.width, whole.width, rank)
    if rank:
        yield f"{MERGED}.down_proj_bias", NOTHING

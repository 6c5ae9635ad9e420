"""How all layers of a decode step fit into one launch that streams their weights, and how it is cut. Arithmetic
only.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import NamedTuple

from pagedchat.jit.kernel_file import Constants
from pagedchat.ops.all_layers.room import other_bytes, slot_bytes
from pagedchat.ops.all_layers.shape import (
    MAX_TOKENS,
    NUM_WARPS,
    UNITS_OF_SUM,
    LayersShape,
    most_units,
    round_up,
    row_elements,
    sums_of_squares,
    why_not,
)
from pagedchat.ops.common.side_by_side import share_of_second

SETS = 4
"""Of places to publish in, as in kernels/all_layers/layer_memory.cuh."""
_MOST_SLOTS, _FEWEST_SLOTS = 6, 3
_COPIES = 4
"""Of what thread blocks publish: fewer ask for the same line of memory, and more have to be written."""
_TILE_TOKENS = 32
_MOST_TURNS = 4
"""Tiles of a context that a warp attends to, one after another."""
_IN_FLIGHT = 2
"""Slots that are asked for and have not come, at most: with more on their way the memory gives less,
and numbers that thread blocks wait for take longer. What else the ring has is for weights that wait for their
input."""
_PACE = 1600
"""Cycles from one slot that is asked for to the next, at least: a tenth less than an H200's memory takes for it."""
_SMALL_LAYER = 20_000_000
"""Weights."""


class Share(NamedTuple):
    """Units of each product that are a thread block's, as `Share` in the kernel."""

    first_qkv: int
    num_qkv: int
    first_stream: int
    num_stream: int
    first_up: int
    num_up: int
    first_values: int
    num_values: int


@dataclass(frozen=True, slots=True)
class LayersPlan:
    """The launch."""

    num_thread_blocks: int
    num_tokens: int
    """Sequences."""
    num_splits: int
    """Thread blocks that share the context of a token and KV head."""
    slots: int
    """Of the ring of weights."""
    copies: int
    """Of what thread blocks publish."""
    copying_warps: int
    """Of a thread block, behind those that multiply: one, or of few bits two, the second for their scales."""
    in_flight: int = 0
    """Slots that are asked for and have not come, at most; 0: all of them."""
    pace: int = 0
    """Cycles between two slots that are asked for, at least: bursts keep numbers waiting that all need."""

    @property
    def num_threads(self) -> int:
        """Of a thread block: warps that multiply, those that copy, one that marks."""
        return 32 * (NUM_WARPS + self.copying_warps + 1)

    @property
    def constants(self) -> Constants:
        """For the compiler, besides those of the shape."""
        return {
            "NUM_BLOCKS": self.num_thread_blocks,
            "NUM_WARPS": NUM_WARPS,
            "COPYING_WARPS": self.copying_warps,
            "TOKENS": self.num_tokens,
            "SPLITS": self.num_splits,
            "SLOTS": self.slots,
            "COPIES": self.copies,
            "PACE": self.pace,
            **({"IN_FLIGHT": self.in_flight} if self.in_flight else {}),
        }

    def shared_bytes(self, shape: LayersShape) -> int:
        """Dynamic shared memory of a thread block."""
        return self.slots * slot_bytes(shape) + other_bytes(
            shape, self.num_tokens, self.num_thread_blocks, self.copies
        )

    def set_elements(self, shape: LayersShape) -> int:
        """Elements of one of the `SETS` in which a layer is published."""
        return self.copies * self._copy(shape)[0] + self.num_tokens * shape.qkv_rows

    def empty_runs(self, shape: LayersShape) -> Iterator[tuple[int, int]]:
        """Begin and end of what is in a set and never published: the ends of rows of whole stages, and sums of
        squares of thread blocks that have nothing of the stream."""
        size, halfway_at, middle_at, stream_at, squares_at = self._copy(shape)
        tokens = self.num_tokens
        rows = [(0, tokens * self.num_splits, shape.attended), (middle_at, tokens, shape.middle)]
        if not shape.form.few:
            rows += [(halfway_at, tokens, shape.hidden), (stream_at, tokens, shape.hidden)]
        for copy, (first, count, width) in product(range(self.copies), rows):
            padded = row_elements(shape.form, width)
            for row in range(count):
                begin = copy * size + first + row * padded
                yield begin + width, begin + padded
        if shape.form.few:
            return
        sums, row_sums = sums_of_squares(shape, self.num_thread_blocks)
        shares = shares_of(shape, self.num_thread_blocks)
        used = [-(-share.num_stream // UNITS_OF_SUM) for share in shares if share.num_stream]
        for copy, row in product(range(self.copies), range(2 * tokens)):
            begin = copy * size + squares_at + 2 * row * row_sums
            for block, count in enumerate(used):
                if count < sums:
                    yield begin + 2 * (block * sums + count), begin + 2 * (block + 1) * sums
            if len(used) * sums < row_sums:
                yield begin + 2 * len(used) * sums, begin + 2 * row_sums

    def _copy(self, shape: LayersShape) -> tuple[int, int, int, int, int]:
        """Elements of a copy, and where in it the stream is halfway, the middle, the stream and its squares, as
        `Published` in the kernel."""
        tokens, rows = self.num_tokens, self.num_tokens * self.num_splits
        states = rows * round_up(shape.num_heads, 8) * 2 if self.num_splits > 1 else 0
        stream = shape.hidden if shape.form.few else row_elements(shape.form, shape.hidden)
        squares = 0 if shape.form.few else 2 * 2 * sums_of_squares(shape, self.num_thread_blocks)[1]
        halfway_at = rows * row_elements(shape.form, shape.attended) + states
        middle_at = halfway_at + tokens * stream
        stream_at = middle_at + tokens * row_elements(shape.form, shape.middle)
        squares_at = stream_at + tokens * stream
        return round_up(squares_at + tokens * squares, 64), halfway_at, middle_at, stream_at, squares_at


@cache
def plan_layers(
    shape: LayersShape, num_tokens: int, context_len: int, num_multiprocessors: int, shared_limit: int
) -> LayersPlan | None:
    """The launch for `num_tokens` sequences of up to `context_len` tokens; None where it does not fit.

    Args:
        shape: of the model.
        num_tokens: 1, 2, 4 or 8.
        context_len: of the longest sequence, this step's token included.
        num_multiprocessors: of the GPU.
        shared_limit: bytes of shared memory that a thread block may have there.
    """
    if why_not(shape) or num_tokens not in ((1,) if shape.form.few else (1, 2, 4, MAX_TOKENS)):
        return None
    rows = num_tokens
    splits = _splits(shape, rows, context_len, num_multiprocessors)
    turn = splits * NUM_WARPS * _TILE_TOKENS
    slots = min(
        _MOST_SLOTS, (shared_limit - other_bytes(shape, rows, num_multiprocessors, _COPIES)) // slot_bytes(shape)
    )
    fits = rows * shape.num_kv_heads <= num_multiprocessors and slots >= _FEWEST_SLOTS
    units = -(-shape.hidden // shape.unit // num_multiprocessors)
    if not fits or context_len > _MOST_TURNS * turn or units > most_units(shape, rows):
        return None
    copying_warps = 2 if shape.form.few else 1
    in_flight, pace = _under_way(shape)
    return LayersPlan(num_multiprocessors, rows, splits, slots, _COPIES, copying_warps, in_flight, pace)


@cache
def shares_of(shape: LayersShape, num_thread_blocks: int) -> tuple[Share, ...]:
    """Who makes what: of each product each thread block about as many units, since all wait for the last one."""
    unit, with_values = shape.unit, _with_values(shape, num_thread_blocks)
    others = num_thread_blocks - with_values
    values = [*_even(shape.value_rows // unit, with_values), *[0] * others]
    heads = [*[0] * with_values, *_even((shape.qkv_rows - shape.value_rows) // unit, others)[::-1]]
    stream = _even(shape.hidden // unit, num_thread_blocks)
    up = _even(2 * shape.middle // unit, num_thread_blocks)[::-1]
    columns = [column for counts in (heads, stream, up, values) for column in (_starts(counts), counts)]
    return tuple(Share(*row) for row in zip(*columns, strict=True))


def _with_values(shape: LayersShape, num_thread_blocks: int) -> int:
    """Thread blocks that make values where those are apart, and no queries and keys, whose input is in another
    order."""
    if shape.values_form is None:
        return 0
    heads = (shape.qkv_rows - shape.value_rows) // shape.unit, shape.qkv_form.bits
    return share_of_second(heads, (shape.value_rows // shape.unit, shape.values_form.bits), num_thread_blocks)


def _even(count: int, parts: int) -> list[int]:
    return [count // parts + (part < count % parts) for part in range(parts)]


def _starts(counts: list[int]) -> list[int]:
    return [sum(counts[:part]) for part in range(len(counts))]


def _under_way(shape: LayersShape) -> tuple[int, int]:
    """`in_flight` and `pace`. The memory is not what a small layer waits for; a large one has all of it, but not in
    bursts."""
    return (0, 2000) if shape.num_weights <= _SMALL_LAYER and not shape.form.few else (_IN_FLIGHT, _PACE)


def _splits(shape: LayersShape, rows: int, context_len: int, num_multiprocessors: int) -> int:
    """As many that a context is attended to in one turn, a power of two; no more than there is room for. Two turns
    take less than to put splits together, but where weights have few bits: there they take more."""
    if not shape.form.few and context_len <= 2 * NUM_WARPS * _TILE_TOKENS:
        return 1
    splits = 1
    while (
        splits * NUM_WARPS * _TILE_TOKENS < context_len
        and 2 * splits * rows <= 8
        and 2 * splits * rows * shape.num_kv_heads <= num_multiprocessors
    ):
        splits *= 2
    return splits

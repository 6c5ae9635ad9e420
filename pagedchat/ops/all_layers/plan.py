"""How all layers of a decode step fit into one launch that streams their weights, and how it is cut. Arithmetic
only.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import NamedTuple

from pagedchat.jit.kernel_file import Constants
from pagedchat.ops.common.decode_shape import DecodeShape
from pagedchat.ops.common.side_by_side import share_of_second
from pagedchat.ops.quantized.weight_form import NUMBERS, WHOLE, WeightForm

MAX_LAYERS = 64
"""Whose tensors the kernel has places for."""
MAX_TOKENS = 8
"""Of a launch."""
SETS = 4
"""Of places to publish in, as in kernels/all_layers/layer_memory.cuh."""
_UNIT, _FEW_BITS_UNIT = 8, 16
"""Rows of a weight that go to a thread block together; of few bits they are those of a product of tensor cores."""
_HEAD_SIZES = (64, 128)
_BLOCK_SIZES = (8, 16, 32)
_STEP = 32
"""Inner elements that the lanes of a row hold at a time."""
_NUM_WARPS = 8
"""That multiply."""
_STAGE_FEATURES = 1024
_SLOT_BYTES = 2 * _UNIT * (_STAGE_FEATURES + 32) * 2
_MOST_SLOTS, _FEWEST_SLOTS = 6, 3
_MOST_INNER = 8192
"""Inner elements of a row whose input stays in registers: of all but the way down."""
_MIDDLE_STEP = 2048
"""Elements of a middle in shared memory come in so many."""
_MOST_SHARED = 4
"""Tokens whose middle lies in shared memory."""
_TILE_TOKENS = 32
_MOST_TURNS = 4
"""Tiles of a context that a warp attends to, one after another."""
_MOST_GROUP = 16
"""Query heads of a KV head."""
_LAYER_BYTES, _FEW_BITS_LAYER_BYTES, _PRODUCT_BYTES = 12 * 8, 19 * 8, 4 * 8
_RUN_BYTES, _SLOT_RUNS = 64, 4 * _NUM_WARPS
"""Of few bits: bytes of a row that its four lanes read at a time, which of 4 bits have a scale in common, and how
many a slot has of each row."""
_GROUP = 128
"""Elements of such a run of 4 bits."""
_MOST_FEW_BITS = 8192
"""Inner elements of a row of few bits, in whole slots, but for the middle, which lies in shared memory."""
_MOST_FEW_BITS_UNITS = 4
"""Whose sums are finished together."""
_IN_FLIGHT = 2
"""Slots that are asked for and have not come, at most: with more on their way the memory gives less,
and numbers that thread blocks wait for take longer. What else the ring has is for weights that wait for their
input."""
_PACE = 1600
"""Cycles from one slot that is asked for to the next, at least: a tenth less than an H200's memory takes for it."""
_WORTH_BYTES = 16
"""What is known of each run of a middle besides its elements."""
_COPIES = 4
"""Of what thread blocks publish: fewer ask for the same line of memory, and more have to be written."""
_SMALL_LAYER = 20_000_000
"""Weights."""
_SLACK_BYTES, _FEW_BITS_SLACK_BYTES = 512, 3072
"""What alignment and barriers take, and of few bits lists of what is published."""
_UNITS_OF_SUM = 4
"""Of the residual stream, of which a warp has one sum of squares."""


@dataclass(frozen=True, slots=True)
class LayersShape(DecodeShape):
    """A model, as the kernel sees it."""

    form: WeightForm = WHOLE
    """Of all weights but those of queries, keys and values."""
    qkv_form: WeightForm = WHOLE
    """Of theirs."""
    values_form: WeightForm | None = None
    """Of those of values, where it is another one, and they are a product of their own."""

    @property
    def forms(self) -> tuple[WeightForm, ...]:
        """Of all weights; each that is there once or more."""
        values = () if self.values_form is None else (self.values_form,)
        return self.qkv_form, *values, self.form

    @property
    def value_rows(self) -> int:
        """Of a product of their own."""
        return 0 if self.values_form is None else self.num_kv_heads * self.head_size

    @property
    def num_weights(self) -> int:
        """Of a layer."""
        return (self.qkv_rows + self.attended + 3 * self.middle) * self.hidden

    @property
    def unit(self) -> int:
        """Rows of a weight that go to a thread block together."""
        return _FEW_BITS_UNIT if self.form.few else _UNIT

    @property
    def constants(self) -> Constants:
        """For the compiler."""
        tile_parts = 1 if self.head_size <= 64 else 2  # keys and values of a tile in registers
        kinds: Constants = {"LAYER_KIND": NUMBERS[self.form.kind], "QKV_KIND": NUMBERS[self.qkv_form.kind]}
        if self.values_form is not None:
            kinds = {**kinds, "VALUES_KIND": NUMBERS[self.values_form.kind]}
        return {**self.sizes_as_constants, "TILE_PARTS": tile_parts, **(kinds if self.form.few else {})}


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
        return 32 * (_NUM_WARPS + self.copying_warps + 1)

    @property
    def constants(self) -> Constants:
        """For the compiler, besides those of the shape."""
        return {
            "NUM_BLOCKS": self.num_thread_blocks,
            "NUM_WARPS": _NUM_WARPS,
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
        return self.slots * _slot_bytes(shape) + _other_bytes(shape, self.num_tokens, self.num_thread_blocks)

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
            padded = _padded(shape.form, width)
            for row in range(count):
                begin = copy * size + first + row * padded
                yield begin + width, begin + padded
        if shape.form.few:
            return
        sums, row_sums = _sums_of_squares(shape, self.num_thread_blocks)
        shares = shares_of(shape, self.num_thread_blocks)
        used = [-(-share.num_stream // _UNITS_OF_SUM) for share in shares if share.num_stream]
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
        states = rows * _round_up(shape.num_heads, 8) * 2 if self.num_splits > 1 else 0
        stream = shape.hidden if shape.form.few else _padded(shape.form, shape.hidden)
        squares = 0 if shape.form.few else 2 * 2 * _sums_of_squares(shape, self.num_thread_blocks)[1]
        halfway_at = rows * _padded(shape.form, shape.attended) + states
        middle_at = halfway_at + tokens * stream
        stream_at = middle_at + tokens * _padded(shape.form, shape.middle)
        squares_at = stream_at + tokens * stream
        return _round_up(squares_at + tokens * squares, 64), halfway_at, middle_at, stream_at, squares_at


def why_not(shape: LayersShape) -> str:
    """What of a model's widths the kernel has no code for, in words that go after "since"; empty if nothing."""
    if shape.head_size not in _HEAD_SIZES:
        return f"its heads have {shape.head_size} elements, expected {' or '.join(map(str, _HEAD_SIZES))}"
    if shape.block_size not in _BLOCK_SIZES:
        return f"blocks of the cache have {shape.block_size} slots"
    if shape.group_size > _MOST_GROUP:
        return f"{shape.group_size} query heads share a KV head, and {_MOST_GROUP} is the most"
    return _why_not_few_bits(shape) if any(form.few for form in shape.forms) else _why_not_whole(shape)


def _why_not_whole(shape: LayersShape) -> str:
    for width in (shape.hidden, shape.middle, shape.attended):
        if width % _STEP:
            return f"a width of {width:,} is not a multiple of {_STEP}"
    if (widest := max(shape.hidden, shape.attended)) > _MOST_INNER:
        return f"a width of {widest:,} is more than the {_MOST_INNER:,} that registers hold"
    return ""


def _why_not_few_bits(shape: LayersShape) -> str:
    for form in shape.forms:
        if not _takes(form):
            return (
                f"its weights are {form}, where one launch takes a scale a row, or groups of {_GROUP} with minimums"
            )
    if shape.values_form is not None and shape.values_form.kind == shape.qkv_form.kind:
        return f"its values are apart, and of the same {shape.qkv_form} as queries and keys"
    products = (*((form, shape.hidden) for form in shape.forms), (shape.form, shape.attended))
    for form, width in (*products, (shape.form, shape.middle)):
        if width % _run(form):
            return f"a width of {width:,} is not a multiple of {_run(form)}"
    for form, width in products:
        if _padded(form, width) > _MOST_FEW_BITS:
            return f"a width of {width:,} is more than the {_MOST_FEW_BITS:,} that registers hold"
    runs = shape.middle // _run(shape.form)
    if shape.form.scale_group and runs > _SLOT_RUNS and runs % 8:
        return f"scales of {runs} groups do not begin at 16 bytes in every row"
    return ""


def _takes(form: WeightForm) -> bool:
    """Whether the kernel has code for weights of this form beside others of few bits."""
    if form.bits == 4:
        return form.scale_group == _GROUP and form.has_minimums
    return form.few and not form.scale_group


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
    turn = splits * _NUM_WARPS * _TILE_TOKENS
    slots = min(_MOST_SLOTS, (shared_limit - _other_bytes(shape, rows, num_multiprocessors)) // _slot_bytes(shape))
    fits = rows * shape.num_kv_heads <= num_multiprocessors and slots >= _FEWEST_SLOTS
    units = -(-shape.hidden // shape.unit // num_multiprocessors)
    if not fits or context_len > _MOST_TURNS * turn or units > _most_units(shape, rows):
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


def _sums_of_squares(shape: LayersShape, num_thread_blocks: int) -> tuple[int, int]:
    """Of a thread block, and places for those of a token."""
    units = -(-(shape.hidden // shape.unit) // num_thread_blocks)
    sums = -(-units // _UNITS_OF_SUM)
    return sums, _round_up(min(num_thread_blocks, shape.hidden // shape.unit) * sums, 4)


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
    if not shape.form.few and context_len <= 2 * _NUM_WARPS * _TILE_TOKENS:
        return 1
    splits = 1
    while (
        splits * _NUM_WARPS * _TILE_TOKENS < context_len
        and 2 * splits * rows <= 8
        and 2 * splits * rows * shape.num_kv_heads <= num_multiprocessors
    ):
        splits *= 2
    return splits


def _most_units(shape: LayersShape, rows: int) -> int:
    """Whose sums are finished together."""
    if shape.form.few:
        return _MOST_FEW_BITS_UNITS
    return 16 if rows <= 2 else 32 // rows


def _slot_bytes(shape: LayersShape) -> int:
    """Of the ring."""
    if not shape.form.few:
        return _SLOT_BYTES
    scales = 2 * _SLOT_RUNS if any(form.scale_group for form in shape.forms) else 1
    return _FEW_BITS_UNIT * (_SLOT_RUNS * _RUN_BYTES + 2 * scales)


def _other_bytes(shape: LayersShape, rows: int, num_thread_blocks: int) -> int:
    """Shared memory besides the ring."""
    group, head = shape.group_size, shape.head_size
    padded = _round_up(group, 8)
    sums = 2 * _NUM_WARPS * _most_units(shape, rows) * rows * shape.unit * 4
    attention = _NUM_WARPS * (padded * 40 * 2 + group * (head + 4) * 4)
    states = _NUM_WARPS * 2 * padded * 4 + (group + 2) * head * 2
    shared = max(attention, _middle_bytes(shape, rows))  # they lie in the same place
    apart = _few_bits_bytes(shape, rows) if shape.form.few else _whole_bytes(shape, rows, num_thread_blocks)
    return sums + states + shared + apart


def _few_bits_bytes(shape: LayersShape, rows: int) -> int:
    """Of them those for layers and norms, and what is small."""
    of_layer = _FEW_BITS_LAYER_BYTES + (0 if shape.values_form is None else _PRODUCT_BYTES)
    return MAX_LAYERS * of_layer + _NUM_WARPS * rows * 4 + _FEW_BITS_SLACK_BYTES


def _whole_bytes(shape: LayersShape, rows: int, num_thread_blocks: int) -> int:
    """The same, and for pieces on their way from lane to lane."""
    exchange = 512 * _NUM_WARPS if rows < MAX_TOKENS else 0
    norms = rows * (_sums_of_squares(shape, num_thread_blocks)[1] + 4) * 4
    runs, context = 8 * (2 + 2 * rows + _COPIES * (3 * rows + 2)), 40 + 8 * shape.head_size
    return MAX_LAYERS * _LAYER_BYTES + exchange + norms + runs + context + _SLACK_BYTES


def _middle_bytes(shape: LayersShape, rows: int) -> int:
    """Shared memory for the middle; that of many tokens is in registers."""
    elements = _padded(shape.form, shape.middle)
    if shape.form.few:
        return 2 * elements + _WORTH_BYTES * (elements // _run(shape.form))
    return 2 * rows * _round_up(elements, _MIDDLE_STEP) if rows <= _MOST_SHARED else 0


def _run(form: WeightForm) -> int:
    """Elements of a run of few bits."""
    return _RUN_BYTES * 8 // form.bits


def _padded(form: WeightForm, width: int) -> int:
    """A row in whole stages, or of few bits in whole slots."""
    return _round_up(width, _SLOT_RUNS * _run(form) if form.few else _STAGE_FEATURES)


def _round_up(count: int, step: int) -> int:
    return -(-count // step) * step

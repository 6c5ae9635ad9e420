"""A model as the kernel of all layers sees it, how its rows are cut, and what there is no code for. Arithmetic
only.
"""

from dataclasses import dataclass

from pagedchat.jit.kernel_file import Constants
from pagedchat.ops.common.decode_shape import DecodeShape
from pagedchat.ops.quantized.weight_form import NUMBERS, WHOLE, WeightForm

MAX_LAYERS = 64
"""Whose tensors the kernel has places for."""
MAX_TOKENS = 8
"""Of a launch."""
NUM_WARPS = 8
"""That multiply."""
UNIT, FEW_BITS_UNIT = 8, 16
"""Rows of a weight that go to a thread block together; of few bits they are those of a product of tensor cores."""
UNITS_OF_SUM = 4
"""Of the residual stream, of which a warp has one sum of squares."""
STAGE_FEATURES = 1024
"""Inner elements of a row that all warps multiply by together."""
RUN_BYTES, SLOT_RUNS = 64, 4 * NUM_WARPS
"""Of few bits: bytes of a row that its four lanes read at a time, which of 4 bits have a scale in common, and how
many a slot has of each row."""
_GROUP = 128
"""Elements of such a run of 4 bits."""
_HEAD_SIZES = (64, 128)
_BLOCK_SIZES = (8, 16, 32)
_STEP = 32
"""Inner elements that the lanes of a row hold at a time."""
_MOST_GROUP = 16
"""Query heads of a KV head."""
_MOST_INNER = 8192
"""Inner elements of a row whose input stays in registers: of all but the way down."""
_MOST_FEW_BITS = 8192
"""Inner elements of a row of few bits, in whole slots, but for the middle, which lies in shared memory."""
_MOST_FEW_BITS_UNITS = 4
"""Whose sums are finished together."""


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
        return FEW_BITS_UNIT if self.form.few else UNIT

    @property
    def constants(self) -> Constants:
        """For the compiler."""
        tile_parts = 1 if self.head_size <= 64 else 2  # keys and values of a tile in registers
        kinds: Constants = {"LAYER_KIND": NUMBERS[self.form.kind], "QKV_KIND": NUMBERS[self.qkv_form.kind]}
        if self.values_form is not None:
            kinds = {**kinds, "VALUES_KIND": NUMBERS[self.values_form.kind]}
        return {**self.sizes_as_constants, "TILE_PARTS": tile_parts, **(kinds if self.form.few else {})}


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
        if width % run_of(form):
            return f"a width of {width:,} is not a multiple of {run_of(form)}"
    for form, width in products:
        if row_elements(form, width) > _MOST_FEW_BITS:
            return f"a width of {width:,} is more than the {_MOST_FEW_BITS:,} that registers hold"
    runs = shape.middle // run_of(shape.form)
    if shape.form.scale_group and runs > SLOT_RUNS and runs % 8:
        return f"scales of {runs} groups do not begin at 16 bytes in every row"
    return ""


def _takes(form: WeightForm) -> bool:
    """Whether the kernel has code for weights of this form beside others of few bits."""
    if form.bits == 4:
        return form.scale_group == _GROUP and form.has_minimums
    return form.few and not form.scale_group


def most_units(shape: LayersShape, rows: int) -> int:
    """Whose sums are finished together."""
    if shape.form.few:
        return _MOST_FEW_BITS_UNITS
    return 16 if rows <= 2 else 32 // rows


def sums_of_squares(shape: LayersShape, num_thread_blocks: int) -> tuple[int, int]:
    """Of a thread block, and places for those of a token."""
    units = -(-(shape.hidden // shape.unit) // num_thread_blocks)
    sums = -(-units // UNITS_OF_SUM)
    return sums, round_up(min(num_thread_blocks, shape.hidden // shape.unit) * sums, 4)


def run_of(form: WeightForm) -> int:
    """Elements of a run of few bits."""
    return RUN_BYTES * 8 // form.bits


def row_elements(form: WeightForm, width: int) -> int:
    """A row in whole stages, or of few bits in whole slots."""
    return round_up(width, SLOT_RUNS * run_of(form) if form.few else STAGE_FEATURES)


def round_up(count: int, step: int) -> int:
    """To whole steps."""
    return -(-count // step) * step

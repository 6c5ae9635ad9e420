"""Shared memory of a thread block in the launch of all layers, as kernels/all_layers/layer_memory.cuh lays it out.
Arithmetic only.
"""

from pagedchat.ops.all_layers.shape import (
    FEW_BITS_UNIT,
    MAX_LAYERS,
    MAX_TOKENS,
    NUM_WARPS,
    RUN_BYTES,
    SLOT_RUNS,
    STAGE_FEATURES,
    UNIT,
    LayersShape,
    most_units,
    round_up,
    row_elements,
    run_of,
    sums_of_squares,
)

_SLOT_BYTES = 2 * UNIT * (STAGE_FEATURES + 32) * 2
_MIDDLE_STEP = 2048
"""Elements of a middle in shared memory come in so many."""
_MOST_SHARED = 4
"""Tokens whose middle lies in shared memory."""
_LAYER_BYTES, _FEW_BITS_LAYER_BYTES, _PRODUCT_BYTES = 12 * 8, 19 * 8, 4 * 8
_WORTH_BYTES = 16
"""What is known of each run of a middle besides its elements."""
_SLACK_BYTES, _FEW_BITS_SLACK_BYTES = 512, 3072
"""What alignment and barriers take, and of few bits lists of what is published."""


def slot_bytes(shape: LayersShape) -> int:
    """Of a slot of the ring."""
    if not shape.form.few:
        return _SLOT_BYTES
    scales = 2 * SLOT_RUNS if any(form.scale_group for form in shape.forms) else 1
    return FEW_BITS_UNIT * (SLOT_RUNS * RUN_BYTES + 2 * scales)


def other_bytes(shape: LayersShape, rows: int, num_thread_blocks: int, copies: int) -> int:
    """Shared memory besides the ring."""
    group, head = shape.group_size, shape.head_size
    padded = round_up(group, 8)
    sums = 2 * NUM_WARPS * most_units(shape, rows) * rows * shape.unit * 4
    attention = NUM_WARPS * (padded * 40 * 2 + group * (head + 4) * 4)
    states = NUM_WARPS * 2 * padded * 4 + (group + 2) * head * 2
    shared = max(attention, _middle_bytes(shape, rows))  # they lie in the same place
    apart = _few_bits_bytes(shape, rows) if shape.form.few else _whole_bytes(shape, rows, num_thread_blocks, copies)
    return sums + states + shared + apart


def _few_bits_bytes(shape: LayersShape, rows: int) -> int:
    """Of them those for layers and norms, and what is small."""
    of_layer = _FEW_BITS_LAYER_BYTES + (0 if shape.values_form is None else _PRODUCT_BYTES)
    return MAX_LAYERS * of_layer + NUM_WARPS * rows * 4 + _FEW_BITS_SLACK_BYTES


def _whole_bytes(shape: LayersShape, rows: int, num_thread_blocks: int, copies: int) -> int:
    """The same, and for pieces on their way from lane to lane."""
    exchange = 512 * NUM_WARPS if rows < MAX_TOKENS else 0
    norms = rows * (sums_of_squares(shape, num_thread_blocks)[1] + 4) * 4
    runs, context = 8 * (2 + 2 * rows + copies * (3 * rows + 2)), 40 + 8 * shape.head_size
    return MAX_LAYERS * _LAYER_BYTES + exchange + norms + runs + context + _SLACK_BYTES


def _middle_bytes(shape: LayersShape, rows: int) -> int:
    """Shared memory for the middle; that of many tokens is in registers."""
    elements = row_elements(shape.form, shape.middle)
    if shape.form.few:
        return 2 * elements + _WORTH_BYTES * (elements // run_of(shape.form))
    return 2 * rows * round_up(elements, _MIDDLE_STEP) if rows <= _MOST_SHARED else 0

"""Kernels that make the inputs of products: rows as they are, normed, or through an activation, written in the
order that a product wants. All that a row becomes follows from the row alone.

What they write:

- "f32": floats in runs of 32, filled up with zeros, for products with weights in float32;
- "bf16": the same with the even elements of each run before its odd ones, for those in bfloat16;
- "rounded": the same in bfloat16, in their order, for processors that multiply it;
- "int8": groups of whole numbers from -127 to 127 with a scale and their sum, for weights of few bits;
- "int8_blocks": the same of four rows side by side, for `many_bytes_product`, where that is for the processor: four
  numbers of each, then the next four, and the scales and sums of a group.

Arguments: rows (float32), output, width, elements of a row (of `rows`, of the output), weight and bias of a norm
or 0 (float32), eps (float32 bits), group_size, scales, sums, rows that lie in blocks; of "limited" gates the limit
and the sharpness (float32 bits). A unit is a row of norms; else a run or a group of a row.

In a block are 8 rows, for the products that multiply 8 together: of each the first 64 bytes, then the next 64 of
each and so on. Groups have blocks of their own.
"""

from collections.abc import Callable

from pagedchat.jit.cpu.ir import FLOAT, I16, I32, I64, PTR, Function, Module, Value, vector
from pagedchat.jit.cpu.target import CpuTarget
from pagedchat.ops.cpu.dense_elements import RUN, argument, bf16_element, rounded_run
from pagedchat.ops.cpu.dense_tile import ROWS as BLOCK
from pagedchat.ops.cpu.many_bytes_product import BLOCK as GROUPS_BLOCK
from pagedchat.ops.cpu.many_bytes_product import has_many_bytes
from pagedchat.ops.cpu.quantized_product import LONGEST_GROUP
from pagedchat.ops.cpu.vectors import (
    FLOATS,
    INTS,
    LANES,
    VECTOR_ACTIVATIONS,
    load_lanes,
    rounded,
    smallest,
    times_sigmoid,
)

NORMS = ("rms", "layer")
_BYTES, _BLOCKS = "int8", "int8_blocks"
_LEAST = 1e-36
"""Largest number of a group, below which all are taken for zero: 127 divided by it would be no float."""

_Source = Callable[[Value, "Value | None"], Value]
"""Index of an element, and which lanes there are if not all -> 16 of them; zeros where there are none."""


def sinks_of(target: CpuTarget) -> tuple[str, ...]:
    """Of rows: of "bf16" and "rounded" the one that is for the processor."""
    of_many = [_BLOCKS] if has_many_bytes(target) else []
    return ("f32", bf16_element(target).name, _BYTES, *of_many)


def write_rows(module: Module, sink: str) -> None:
    """`plain_f32`, `rms_f32`, `silu_f32`, `silu_gated_f32` and all the others of one of `sinks_of`. Only experts
    have `limited_gated_int8`."""
    _write_parts(module, f"plain_{sink}", sink, _plain)
    for name in VECTOR_ACTIVATIONS:
        _write_parts(module, f"{name}_{sink}", sink, _activated(name))
        _write_parts(module, f"{name}_gated_{sink}", sink, _gated(name))
    for norm in NORMS:
        _write_norm(module, f"{norm}_{sink}", sink, norm)
    if sink == _BYTES:
        _write_parts(module, f"limited_gated_{sink}", sink, _limited)


class _Rows:
    """The arguments of these kernels."""

    def __init__(self, f: Function) -> None:
        args = f.parameter("args")
        self.f = f
        self.rows, self.output = argument(f, args, 0, PTR), argument(f, args, 1, PTR)
        self.width, self.stride, self.output_stride = (argument(f, args, i) for i in (2, 3, 4))
        self.weight, self.bias = argument(f, args, 5), argument(f, args, 6)
        self.eps = argument(f, args, 7, FLOAT)
        self.group = argument(f, args, 8)
        self.scales, self.sums = argument(f, args, 9, PTR), argument(f, args, 10, PTR)
        self.in_blocks = argument(f, args, 11)

    def load(self, base: Value, at: Value, mask: Value | None) -> Value:
        """Of floats."""
        return load_lanes(self.f, self.f.at(base, at, FLOAT), mask)


def _plain(rows: _Rows, row: Value) -> _Source:
    return lambda k, mask: rows.load(row, k, mask)


def _activated(name: str) -> Callable[[_Rows, Value], _Source]:
    function = VECTOR_ACTIVATIONS[name]
    return lambda rows, row: lambda k, mask: function(rows.f, rows.load(row, k, mask))


def _gated(name: str) -> Callable[[_Rows, Value], _Source]:
    """Gates come first, then what they are multiplied with."""
    function = VECTOR_ACTIVATIONS[name]
    return lambda rows, row: (
        lambda k, mask: function(rows.f, rows.load(row, k, mask)) * rows.load(row, k + rows.width, mask)
    )


def _limited(rows: _Rows, row: Value) -> _Source:
    """As `ops.experts.gate.Gate` has it where there is a limit."""
    f = rows.f
    limit, sharpness = (f.splat(argument(f, f.parameter("args"), i, FLOAT), LANES) for i in (12, 13))

    def source(k: Value, mask: Value | None) -> Value:
        gate = smallest(f, rows.load(row, k, mask), limit)
        value = smallest(f, rows.load(row, k + rows.width, mask), limit)
        value = f.choose(value < limit * -1.0, limit * -1.0, value, FLOATS)
        return times_sigmoid(f, gate, gate * sharpness) * (value + 1.0)

    return source


def _write_parts(module: Module, name: str, sink: str, source: Callable[[_Rows, Value], _Source]) -> None:
    f = module.function(name, [("args", PTR), ("first", I64), ("last", I64)])
    rows = _Rows(f)
    parts = _num_parts(rows, sink)
    with f.loop(f.parameter("first"), f.parameter("last")) as unit:
        row_idx = unit // parts
        row = f.at(rows.rows, row_idx * rows.stride, FLOAT)
        _write_part(rows, sink, row_idx, unit % parts, parts, source(rows, row))
    f.finish()


def _write_norm(module: Module, name: str, sink: str, norm: str) -> None:
    f = module.function(name, [("args", PTR), ("first", I64), ("last", I64)])
    rows = _Rows(f)
    parts = _num_parts(rows, sink)
    with f.loop(f.parameter("first"), f.parameter("last")) as row_idx:
        row = f.at(rows.rows, row_idx * rows.stride, FLOAT)
        normed = _normed(rows, row, norm)
        with f.loop(0, parts) as part:
            _write_part(rows, sink, row_idx, part, parts, normed)
    f.finish()


def _normed(rows: _Rows, row: Value, norm: str) -> _Source:
    f = rows.f
    count = f.convert("sitofp", rows.width, FLOAT)
    zero = f.constant(FLOATS, 0.0)
    mean = f.splat(_folded(rows, row, lambda x, _: x) / count, LANES) if norm == "layer" else zero

    def square(x: Value, mask: Value | None) -> Value:
        off = x - mean
        off = off if mask is None else f.choose(mask, off, 0.0, FLOATS)
        return off * off

    spread = _folded(rows, row, square) / count + rows.eps
    inverse = f.splat(f.constant(FLOAT, 1.0) / f.unary("sqrt", spread), LANES)
    weight = f.convert("inttoptr", rows.weight, PTR)
    bias = f.convert("inttoptr", rows.bias, PTR)

    def source(k: Value, mask: Value | None) -> Value:
        scaled = (rows.load(row, k, mask) - mean) * inverse * rows.load(weight, k, mask)
        result = f.variable(FLOATS, scaled)
        with f.when(rows.bias.differs(0)):
            result.value = result.value + rows.load(bias, k, mask)
        return result.value

    return source


def _folded(rows: _Rows, row: Value, of: Callable[[Value, Value | None], Value]) -> Value:
    """The sum of something of each element of a row."""
    f = rows.f
    total = f.variable(FLOATS, 0.0)
    whole = rows.width - rows.width % LANES
    with f.loop(0, whole, LANES) as k:
        total.value = total.value + of(rows.load(row, k, None), None)
    with f.when(whole < rows.width):
        mask = f.first_lanes(rows.width - whole, LANES)
        total.value = total.value + of(rows.load(row, whole, mask), mask)
    return f.folded(total.value, LANES)


def _num_parts(rows: _Rows, sink: str) -> Value:
    """Of a row."""
    return rows.width // rows.group if sink in (_BYTES, _BLOCKS) else (rows.width + (RUN - 1)) // RUN


def _write_part(rows: _Rows, sink: str, row_idx: Value, part: Value, parts: Value, source: _Source) -> None:
    if sink in (_BYTES, _BLOCKS):
        _write_group(rows, row_idx, part, parts, source, in_blocks=sink == _BLOCKS)
    else:
        _write_run(rows, row_idx, part, source, sink)


def _write_run(rows: _Rows, row_idx: Value, part: Value, source: _Source, sink: str) -> None:
    f = rows.f
    k = part * RUN
    first, second = f.variable(FLOATS), f.variable(FLOATS)
    left = rows.width - k
    with f.when(left >= RUN):
        first.value, second.value = source(k, None), source(k + LANES, None)
    with f.when(left < RUN):
        first.value = source(k, f.first_lanes(left, LANES))
        second.value = source(k + LANES, f.first_lanes(left - LANES, LANES))
    low, high = first.value, second.value
    if sink == "rounded":
        f.store(rounded_run(f, low, high), f.at(rows.output, _place(rows, row_idx, k, RUN)[0], I16), aligned=2)
        return
    if sink == "bf16":
        low, high = (f.lanes(first.value, range(i, RUN, 2), second.value) for i in (0, 1))
    place, apart = _place(rows, row_idx, k, LANES)
    f.store(low, f.at(rows.output, place, FLOAT), aligned=4)
    f.store(high, f.at(rows.output, place + apart, FLOAT), aligned=4)


def _place(rows: _Rows, row_idx: Value, k: Value, lanes: int) -> tuple[Value, Value]:
    """Where the first vector of a run goes, and how far behind it the next one."""
    f = rows.f
    in_block = row_idx % BLOCK
    of_block = (row_idx - in_block) * rows.output_stride + k * BLOCK + in_block * lanes
    is_in_block = row_idx < rows.in_blocks
    place = f.choose(is_in_block, of_block, row_idx * rows.output_stride + k, I64)
    return place, f.choose(is_in_block, BLOCK * lanes, lanes, I64)


def _write_group(
    rows: _Rows, row_idx: Value, part: Value, parts: Value, source: _Source, *, in_blocks: bool
) -> None:
    f = rows.f
    start = part * rows.group
    kept = f.variable(vector(LONGEST_GROUP, FLOAT))
    numbers = Value(f, PTR, kept.name)
    largest = f.variable(FLOATS, 0.0)
    nothing = f.variable(FLOATS, 0.0)  # unless some number is none, which the largest one passes over
    with f.loop(0, rows.group, LANES) as k:
        each = source(start + k, None)
        f.store(each, f.at(numbers, k, FLOAT), aligned=4)
        largest.value = f.largest(largest.value, f.unary("fabs", each))
        nothing.value = f.fma(each, f.constant(FLOATS, 0.0), nothing.value)
    most = f.folded(largest.value, LANES, "largest")
    scale = most / 127.0 + f.folded(nothing.value, LANES)
    inverse = f.choose(most >= _LEAST, f.constant(FLOAT, 127.0) / most, 0.0, FLOAT)
    total = f.variable(INTS, 0)
    in_block = row_idx % GROUPS_BLOCK if in_blocks else None
    if in_block is None:
        output = f.at(rows.output, row_idx * rows.output_stride + start, "i8")
    else:
        first = (row_idx - in_block) * rows.output_stride + start * GROUPS_BLOCK
        output = f.at(rows.output, first + in_block * 4, "i8")
    with f.loop(0, rows.group, LANES) as k:
        scaled = f.load(FLOATS, f.at(numbers, k, FLOAT), aligned=4) * f.splat(inverse, LANES)
        whole = rounded(f, scaled)
        total.value = total.value + whole
        digits = f.convert("trunc", whole, vector(LANES, "i8"))
        if in_block is None:
            f.store(digits, f.at(output, k, "i8"))
        else:
            _store_fours(f, digits, f.at(output, k * GROUPS_BLOCK, "i8"))
    at = row_idx * parts + part
    if in_block is not None:
        at = (row_idx - in_block) * parts + part * GROUPS_BLOCK + in_block
    f.store(scale, f.at(rows.scales, at, FLOAT), aligned=4)
    f.store(f.folded(total.value, LANES), f.at(rows.sums, at, I32), aligned=4)


def _store_fours(f: Function, digits: Value, place: Value) -> None:
    """16 bytes of a row in a block: four after four."""
    fours = f.convert("bitcast", digits, vector(LANES // 4, I32))
    for i in range(LANES // 4):
        f.store(f.lane(fours, i), f.at(place, 4 * GROUPS_BLOCK * i, "i8"), aligned=4)

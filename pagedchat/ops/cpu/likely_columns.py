"""The kernel that looks through a product in 8 bits for columns that may be the largest of a row in the product
that it stands for: whose weights and inputs are not rounded to 8 bits.

How far off a number of the product in 8 bits may be is bounded. With inputs x and weights w, and x̂ and ŵ what
their 8 bits mean, x·w - x̂·ŵ = (x - x̂)·ŵ + x·(w - ŵ), which is at most |x - x̂| |ŵ| + |x| |w - ŵ| (Cauchy and
Schwarz). So a column whose number plus its bound is less than another's minus its own cannot be the largest. Some
room, `SLACK`, is left for what is rounded afterwards: numbers that are as large in bfloat16 are marked, too. So are
those whose bound is no number.

Arguments: the product (float32), elements from a row of it to the next, columns, lengths of ŵ and of w - ŵ (float32
[columns] each), inputs (int8), their scales (float32 [num_rows, groups]), in_features, group_size, by what share of
an element exact inputs are rounded (the bits of a float), marks (uint8 [columns]), which become 1. A unit is a row.
"""

from pagedchat.jit.cpu.ir import FLOAT, I8, I16, I32, I64, PTR, Function, Module, Value, vector
from pagedchat.ops.cpu.dense_elements import argument
from pagedchat.ops.cpu.vectors import FLOATS, LANES, load_lanes

SLACK = 2.0**-7
"""Of the largest number."""

_LEAST = -3.0e38
_HALF_STEP = 0.501
"""Of a group's scale, that an input is off by, at most."""
_BY_SUMS = 1e-4
"""Of the lengths of inputs and weights, by which sums in float32 are off, at most: of up to 26,000 numbers."""
_BYTES = vector(LANES, I8)


def write_likely_columns(module: Module) -> None:
    """`likely_columns`."""
    f = module.function("likely_columns", [("args", PTR), ("first", I64), ("last", I64)])
    likely = _LikelyColumns(f, f.parameter("args"))
    with f.loop(f.parameter("first"), f.parameter("last")) as row:
        likely.write(row)
    f.finish()


class _LikelyColumns:
    def __init__(self, f: Function, args: Value) -> None:
        self._f = f
        self._product = argument(f, args, 0, PTR)
        self._stride, self._num_columns = argument(f, args, 1), argument(f, args, 2)
        self._lengths, self._lost = argument(f, args, 3, PTR), argument(f, args, 4, PTR)
        self._inputs, self._scales = argument(f, args, 5, PTR), argument(f, args, 6, PTR)
        self._in_features, self._group = argument(f, args, 7), argument(f, args, 8)
        self._rounding = f.convert("bitcast", f.convert("trunc", argument(f, args, 9), I32), FLOAT)
        self._marks = argument(f, args, 10, PTR)

    def write(self, row: Value) -> None:
        f = self._f
        of_lengths, of_lost = self._bounds(row)
        numbers = f.at(self._product, row * self._stride, FLOAT)
        whole = self._num_columns - self._num_columns % LANES
        mask = f.first_lanes(self._num_columns - whole, LANES)
        largest = f.variable(FLOATS, _LEAST)

        def bounded(column: Value, lanes: Value | None) -> tuple[Value, Value]:
            """Numbers, and by how much they may be off."""

            def read(at: Value) -> Value:
                return load_lanes(f, f.at(at, column, FLOAT), lanes)

            return read(numbers), f.fma(read(self._lengths), of_lengths, read(self._lost) * of_lost)

        with f.loop(0, whole, LANES) as column:
            number, off = bounded(column, None)
            largest.value = f.largest(largest.value, number - off)
        number, off = bounded(whole, mask)
        largest.value = f.largest(largest.value, f.choose(mask, number - off, _LEAST, FLOATS))
        most = f.folded(largest.value, LANES, "largest")
        least = f.splat(most - f.unary("fabs", most) * SLACK, LANES)
        with f.loop(0, whole, LANES) as column:
            number, off = bounded(column, None)
            self._mark(column, f.unlike((number + off) < least))
        number, off = bounded(whole, mask)
        self._mark(whole, f.unlike((number + off) < least) & mask)

    def _mark(self, column: Value, are_likely: Value) -> None:
        f = self._f
        with f.when(f.convert("bitcast", are_likely, I16).differs(0)):
            f.store_some(f.constant(_BYTES, 1), f.at(self._marks, column, I8), are_likely)

    def _bounds(self, row: Value) -> tuple[Value, Value]:
        """What a column is off by for its weight's length, and for the length of what its weight has lost, in all
        lanes: how far inputs are off, and how long they are, at most."""
        f = self._f
        groups = self._in_features // self._group
        squares, lost = f.variable(FLOAT, 0.0), f.variable(FLOAT, 0.0)
        with f.loop(0, groups) as group:
            scale = f.load(FLOAT, f.at(self._scales, row * groups + group, FLOAT), aligned=4)
            scale = scale * scale
            total = f.variable(FLOATS, 0.0)
            start = row * self._in_features + group * self._group
            with f.loop(0, self._group, LANES) as k:
                digits = f.convert("sitofp", f.load(_BYTES, f.at(self._inputs, start + k, I8)), FLOATS)
                total.value = f.fma(digits, digits, total.value)
            squares.value = f.fma(scale, f.folded(total.value, LANES), squares.value)
            lost.value = f.fma(scale, f.convert("sitofp", self._group, FLOAT), lost.value)
        off = f.unary("sqrt", lost.value) * _HALF_STEP
        length = f.unary("sqrt", squares.value) + off
        off = off + length * (self._rounding + _BY_SUMS)
        return f.splat(off, LANES), f.splat(length + length * self._rounding, LANES)

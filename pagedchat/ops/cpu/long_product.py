"""The kernel of products of many rows with a weight in bfloat16, in float32: the weight is widened into panels
that a core's cache holds, and multiplied there.

Why not in bfloat16: of the instruction for it (`vdpbf16ps`) processors of Intel start one every other cycle
where they start four of float32, whose half as many products make twice as much; see
`CpuKernels.has_long_products`.

A unit is a tile of 48 columns of up to 256 rows. Of its weight some elements a row at a time become `[512, 48]`
float32, or three times `[256, 16]` (16 rows by 32 elements are a square of pairs, which is turned over), and
some rows at a time are multiplied by that with their sums in registers: 8 times 48 of them, or 6 times 16 where
registers are few and narrow. Where fewer rows are left the last one is there several times. Sums are of one
product after the other, in the order of the elements and from the bias on, whatever else is computed: a row's
numbers never depend on its company.

Arguments: weight (bfloat16 [out_features, in_features]), input, output, bias or 0 (float32), out_features,
in_features, num_rows, elements of an input row, elements of an output row, 1 to add to what the output holds.
"""

from functools import partial
from typing import NamedTuple

from pagedchat.jit.cpu.ir import FLOAT, I16, I64, PTR, Function, Module, Value, Variable
from pagedchat.jit.cpu.target import CpuTarget
from pagedchat.ops.cpu.dense_elements import argument
from pagedchat.ops.cpu.vectors import FLOATS, INTS, LANES, at_most, by_columns, store_result, transposed

TILE_COLUMNS, TILE_ROWS = 48, 256
"""Of a unit, at most."""
RUN = 32
"""Elements of a row that are widened at a time: widths are multiples of it."""

_VECTORS = TILE_COLUMNS // LANES
_STEPS = 4
"""Elements of a row in a turn of the loop."""
_AHEAD_BYTES = 512
"""How far ahead of a panel its weight is fetched."""


class _Shape(NamedTuple):
    """What registers and the nearest cache hold."""

    group: int
    """Rows that are multiplied together."""
    vectors: int
    """Of 16 columns, by which they are."""
    depth: int
    """Elements of a row that a panel has."""


_WIDE, _NARROW = _Shape(8, 3, 512), _Shape(6, 1, 256)


def write_long_product(module: Module, target: CpuTarget) -> None:
    """`long_bf16`."""
    f = module.function("long_bf16", [("args", PTR), ("first", I64), ("last", I64)])
    product = _Product(f, target)
    with f.loop(f.parameter("first"), f.parameter("last")) as unit:
        product.write(unit)
    f.finish()


class _Product:
    """One unit after the other."""

    def __init__(self, f: Function, target: CpuTarget) -> None:
        args = f.parameter("args")
        shape = _WIDE if target.has_wide_registers else _NARROW
        self._f, self._target, self._shape = f, target, shape
        self._weight, self._rows, self._output = (argument(f, args, i, PTR) for i in range(3))
        self._bias = argument(f, args, 3)
        self._out_features, self._in_features, self._num_rows = (argument(f, args, i) for i in (4, 5, 6))
        self._x_stride, self._y_stride, self._adds = (argument(f, args, i) for i in (7, 8, 9))
        self._panel = f.buffer(FLOAT, shape.depth * TILE_COLUMNS)
        self._sums = f.buffer(FLOAT, (TILE_ROWS + shape.group) * TILE_COLUMNS)

    def write(self, unit: Value) -> None:
        f, shape = self._f, self._shape
        parts = (self._num_rows + (TILE_ROWS - 1)) // TILE_ROWS
        column, row = (unit // parts) * TILE_COLUMNS, (unit % parts) * TILE_ROWS
        num_rows = at_most(f, self._num_rows - row, TILE_ROWS)
        groups = (num_rows + (shape.group - 1)) // shape.group
        self._begin(column, groups * shape.group)
        with f.loop(0, self._in_features, shape.depth) as first:
            depth = at_most(f, self._in_features - first, shape.depth)
            for i in range(_VECTORS):
                self._widen(column + i * LANES, i, first, depth)
            for part in range(0, _VECTORS, shape.vectors):
                with f.loop(0, groups) as group:
                    places = [row + group * shape.group + i for i in range(shape.group)]
                    numbers = [at_most(f, place, self._num_rows - 1) for place in places]
                    rows = [f.at(self._rows, number * self._x_stride + first, FLOAT) for number in numbers]
                    sums = f.at(self._sums, group * (shape.group * TILE_COLUMNS) + part * LANES, FLOAT)
                    self._add(rows, sums, f.at(self._panel, self._place(part, 0), FLOAT), depth)
        self._finish(row, column, num_rows)

    def _begin(self, column: Value, num_rows: Value) -> None:
        """All sums begin with the bias."""
        f = self._f
        starts = [f.variable(FLOATS, 0.0) for _ in range(_VECTORS)]
        with f.when(self._bias.differs(0)):
            bias = f.convert("inttoptr", self._bias, PTR)
            for i, start in enumerate(starts):
                at = column + i * LANES
                mask = f.first_lanes(self._out_features - at, LANES)
                start.value = f.load_some(FLOATS, f.at(bias, at, FLOAT), mask)
        with f.loop(0, num_rows) as row:
            for i, start in enumerate(starts):
                place = f.at(self._sums, row * TILE_COLUMNS + i * LANES, FLOAT)
                f.store(start.value, place, aligned=64)

    def _widen(self, column: Value, part: int, first: Value, depth: Value) -> None:
        """16 rows of the weight into their columns of the panel; where there are fewer the last one is taken."""
        f = self._f
        last = self._out_features - 1
        offsets = [at_most(f, column + i, last) * self._in_features + first for i in range(LANES)]
        rows = [f.at(self._weight, offset, I16) for offset in offsets]
        with f.loop(0, depth, RUN) as k:
            pairs = []
            for row in rows:
                at = f.at(row, k, I16)
                f.fetch_soon(f.at(at, _AHEAD_BYTES, "i8"))
                pairs.append(f.load(INTS, at, aligned=2))
            for i, pair in enumerate(transposed(f, pairs)):
                for half, widened in enumerate((pair << 16, pair & -65536)):
                    step = 2 * i + half
                    place = f.at(self._panel, k * self._stride + self._place(part, step), FLOAT)
                    f.store(f.convert("bitcast", widened, FLOATS), place, aligned=64)

    @property
    def _stride(self) -> int:
        """Floats from an element to the next one in a panel."""
        return self._shape.vectors * LANES

    def _place(self, part: int, k: int) -> int:
        """Of 16 columns of an element in it: those that rows are multiplied by together lie together."""
        whole, rest = divmod(part, self._shape.vectors)
        return (whole * self._shape.depth + k) * self._stride + rest * LANES

    def _add(self, rows: list[Value], sums: Value, panel: Value, depth: Value) -> None:
        """A group times as many columns of the panel as registers are for."""
        f = self._f
        places = [
            [f.at(sums, i * TILE_COLUMNS + j * LANES, FLOAT) for j in range(self._shape.vectors)]
            for i in range(self._shape.group)
        ]
        totals = [
            [f.variable(FLOATS, f.load(FLOATS, at, aligned=64)) for at in its_places] for its_places in places
        ]
        with f.loop(0, depth, _STEPS) as k:
            for step in range(_STEPS):
                self._add_one(rows, panel, k + step, totals)
        for its_places, its_totals in zip(places, totals, strict=True):
            for place, total in zip(its_places, its_totals, strict=True):
                f.store(total.value, place, aligned=64)

    def _add_one(self, rows: list[Value], panel: Value, k: Value, totals: list[list[Variable]]) -> None:
        """One element of each row."""
        f = self._f
        column = f.at(panel, k * self._stride, FLOAT)
        weights = [f.load(FLOATS, f.at(column, j * LANES, FLOAT), aligned=64) for j in range(self._shape.vectors)]
        for row, its_totals in zip(rows, totals, strict=True):
            number = f.splat(f.load(FLOAT, f.at(row, k, FLOAT), aligned=4), LANES)
            for total, weight in zip(its_totals, weights, strict=True):
                total.value = f.fma(number, weight, total.value)

    def _finish(self, row: Value, column: Value, num_rows: Value) -> None:
        """Sums into results."""
        f = self._f
        with f.loop(0, num_rows) as i:
            for j in range(_VECTORS):
                at = column + j * LANES
                finish = partial(self._finish_vector, row, i, j, at)
                by_columns(f, self._target, self._out_features - at, finish)

    def _finish_vector(self, row: Value, i: Value, part: int, column: Value, mask: Value | None) -> None:
        f = self._f
        sums = f.load(FLOATS, f.at(self._sums, i * TILE_COLUMNS + part * LANES, FLOAT), aligned=64)
        place = f.at(self._output, (row + i) * self._y_stride + column, FLOAT)
        store_result(f, sums, place, self._adds, mask)

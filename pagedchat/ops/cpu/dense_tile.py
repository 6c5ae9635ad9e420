"""The kernel of products of many rows with weights in float32 and bfloat16, 8 rows at a time: sums as those of
`dense_product`, bit for bit, and near what the processor can multiply.

A call has some columns, a tile that a core's own cache holds. While 8 rows are multiplied by it, 3 columns at a
time, their share of the tile that this thread is likely to have next is fetched from memory: so reading weights
and multiplying go on at the same time. Wide inputs are taken in parts of which the nearest cache holds 8; sums of
16 lanes wait in memory for the next part. When all are there they are added lane by lane in the order of
`Function.folded`: of a column all 8 rows' become one vector, with two lanes a row, and at the end those of 16
columns are added to each other and turned into rows.

Arguments: those of `dense_product`, and how many bytes the next tile's weight is ahead of this one's.
"""

from pagedchat.jit.cpu.ir import FLOAT, I64, PTR, Function, Module, Value, Variable
from pagedchat.ops.cpu.dense_elements import RUN, DenseElement, argument
from pagedchat.ops.cpu.vectors import FLOATS, LANES, folded_in_pairs, transposed_in_pairs

ROWS, COLUMNS = 8, 3
"""That are multiplied together: 24 sums of 16 lanes."""
TILE_COLUMNS = 72
"""Of a tile, at most."""

_LINE = 64
"""Bytes that memory gives at a time."""
_FETCHED = 3
"""Lines of the next tile that are fetched in a turn of the loop."""
_DEPTHS = {"f32": 768, "bf16": 768, "rounded": 1536}
"""Elements of a row in a part: 8 of its inputs, and of 3 columns' weights, have some 32 KB."""


def write_dense_tile(module: Module, element: DenseElement, name: str) -> None:
    """`name`, for rows from an argument on.

    Args:
        module: has it.
        element: what weights and inputs are.
        name: of the kernel.
    """
    f = module.function(name, [("args", PTR), ("first", I64), ("last", I64), ("row", I64)])
    _Tile(f, element).write()
    f.finish()


class _Tile:
    """8 rows of one tile."""

    def __init__(self, f: Function, element: DenseElement) -> None:
        self._f, self._element = f, element
        args, self._first, self._last, self._row = (f.parameter(each) for each in ("args", "first", "last", "row"))
        self._weight, self._bias = argument(f, args, 0, PTR), argument(f, args, 3)
        self._in_features, self._num_rows = argument(f, args, 5), argument(f, args, 6)
        self._x_stride, self._y_stride = argument(f, args, 7), argument(f, args, 8)
        self._adds, self._ahead = argument(f, args, 9), argument(f, args, 10)
        self._inputs = f.at(argument(f, args, 1, PTR), self._row * self._x_stride, element.input_kind)
        self._output = f.at(argument(f, args, 2, PTR), self._row * self._y_stride, FLOAT)
        self._sums = f.buffer(FLOAT, ROWS * TILE_COLUMNS * LANES)
        self._folded = f.buffer(FLOAT, (TILE_COLUMNS + LANES) * LANES)
        self._soon = f.variable(PTR)
        self._begin_fetching()

    def _begin_fetching(self) -> None:
        """These rows' share of the next tile: as much as other rows' of the same tile."""
        f, size = self._f, self._element.size
        blocks, block = self._num_rows // ROWS, self._row // ROWS
        tile_bytes = (self._last - self._first) * self._in_features * size
        start = self._first * self._in_features * size + self._ahead + block * (tile_bytes // blocks)
        self._soon.value = f.at(self._weight, start, "i8")
        self._advance = f.constant(I64, COLUMNS * RUN * size) // blocks
        self._is_alone = blocks.equals(1)

    def write(self) -> None:
        f, depth = self._f, _DEPTHS[self._element.name]
        with f.loop(0, self._in_features, depth) as start:
            left = self._in_features - start
            length = f.choose(left < depth, left, depth, I64)
            with f.loop(self._first, self._last, COLUMNS) as column:
                self._multiply(column, start, length, left <= depth)
        with f.loop(self._first, self._last, LANES) as column:
            self._finish(column)

    def _multiply(self, column: Value, start: Value, length: Value, is_last: Value) -> None:
        f = self._f
        last = self._last - 1
        columns = [column, *(f.choose((column + j) < self._last, column + j, last, I64) for j in (1, 2))]
        weights = [f.at(self._weight, each * self._in_features + start, self._element.kind) for each in columns]
        at = (column - self._first) * LANES
        places = [
            [f.at(self._sums, at * ROWS + (ROWS * j + i) * LANES, FLOAT) for j in range(COLUMNS)]
            for i in range(ROWS)
        ]
        sums = [[f.variable(FLOATS, 0.0) for _ in range(COLUMNS)] for _ in range(ROWS)]
        with f.when(start.differs(0)):
            for its_sums, its_places in zip(sums, places, strict=True):
                for total, place in zip(its_sums, its_places, strict=True):
                    total.value = f.load(FLOATS, place, aligned=64)
        whole = length - length % RUN
        with f.loop(0, whole, RUN) as k:
            self._fetch()
            self._add_run(
                start + k, [self._element.run(f, f.at(each, k, self._element.kind)) for each in weights], sums
            )
        rest = length - whole
        with f.when(rest.differs(0)):
            runs = [self._element.part_of_run(f, f.at(each, whole, self._element.kind), rest) for each in weights]
            self._add_run(start + whole, runs, sums)
        with f.when(is_last):
            for j in range(COLUMNS):
                rows = [its_sums[j].value for its_sums in sums]
                for width in (8, 4, 2):
                    rows = folded_in_pairs(f, rows, width)
                f.store(rows[0], f.at(self._folded, at + j * LANES, FLOAT), aligned=64)
        with f.when(is_last.equals(0)):
            for its_sums, its_places in zip(sums, places, strict=True):
                for total, place in zip(its_sums, its_places, strict=True):
                    f.store(total.value, place, aligned=64)

    def _fetch(self) -> None:
        f = self._f
        soon = self._soon.value
        for i in range(_FETCHED):
            f.fetch_soon(f.at(soon, _LINE * i, "i8"))
        if self._element.name == "f32":
            with f.when(self._is_alone):
                for i in range(_FETCHED, 2 * _FETCHED):
                    f.fetch_soon(f.at(soon, _LINE * i, "i8"))
        self._soon.value = f.at(soon, self._advance, "i8")

    def _add_run(self, k: Value, runs: list[list[Value]], sums: list[list[Variable]]) -> None:
        f = self._f
        place = f.at(self._inputs, k * ROWS, self._element.input_kind)
        for half in range(len(runs[0])):
            for i, its_sums in enumerate(sums):
                at = f.at(place, _LINE * (ROWS * half + i), "i8")
                numbers = self._element.inputs(f, at, aligned=4)
                for run, total in zip(runs, its_sums, strict=True):
                    total.value = self._element.added(f, total.value, run[half], numbers)

    def _finish(self, column: Value) -> None:
        """16 columns of all rows: of each there are two sums a row side by side."""
        f = self._f
        at = f.at(self._folded, (column - self._first) * LANES, FLOAT)
        folded = [f.load(FLOATS, f.at(at, i * LANES, FLOAT), aligned=64) for i in range(LANES)]
        evens_and_odds = folded[0::2] + folded[1::2]
        rows = transposed_in_pairs(f, folded_in_pairs(f, evens_and_odds, 1))
        mask = f.first_lanes(self._last - column, LANES)
        bias = f.variable(FLOATS, 0.0)
        with f.when(self._bias.differs(0)):
            bias.value = f.load_some(FLOATS, f.at(f.convert("inttoptr", self._bias, PTR), column, FLOAT), mask)
        for i, row in enumerate(rows):
            place = f.at(self._output, self._y_stride * i + column, FLOAT)
            result = f.variable(FLOATS, row)
            with f.when(self._bias.differs(0)):
                result.value = result.value + bias.value
            with f.when(self._adds.differs(0)):
                result.value = result.value + f.load_some(FLOATS, place, mask)
            f.store_some(result.value, place, mask)

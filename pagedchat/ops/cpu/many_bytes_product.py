"""The kernel of products of many rows with weights of 8 bits on processors with AVX2 alone: the numbers, and so the
bits, of `quantized_product`, whose weights it has, in fewer instructions.

A unit is a tile, 16 columns, of up to 256 rows. Up to 512 elements of each of its columns are in a core's nearest
cache, in the parts of `dots.parted`, while the rows pass by, four at a time; what they have so far is kept beside
it. Inputs of four rows lie side by side (`rows`): of each four bytes, then the next four. A group of 32 is written
out without a loop. Results are stored among products, which go on meanwhile.

Arguments: those of `quantized_product`, with inputs, their scales and sums in blocks of four rows, the last of
which may hold anything beyond the rows that there are; minimums are 0.
"""

from typing import NamedTuple

from pagedchat.jit.cpu.ir import FLOAT, HALF, I32, I64, PTR, Function, Module, Value, Variable, vector
from pagedchat.jit.cpu.target import CpuTarget
from pagedchat.ops.cpu.dense_elements import argument
from pagedchat.ops.cpu.dots import Parted, below_0, parted, parted_dots
from pagedchat.ops.cpu.quantized_product import PIECE, TILE
from pagedchat.ops.cpu.vectors import FLOATS, at_most, bias_lanes, by_columns, store_result

TILE_ROWS = 256
"""Of a unit, at most."""
BLOCK = 4
"""Rows that are multiplied together, and whose inputs lie together."""

_LANES = 8
"""Columns of a register."""
_DEPTH = 512
"""Elements of a column that are in the nearest cache, at most."""
_STRAIGHT = 32
"""Elements of a group that is written out."""
_LINES_AHEAD = 4
"""Of the weight that comes next, that are fetched beside each block of rows."""

_INTS, _HALVES, _HALF_FLOATS = vector(_LANES, I32), vector(TILE, HALF), vector(_LANES, FLOAT)

_Dots = list[list[Variable]]
"""Of each row of a block the sums of a group: of 8 columns, and of the other 8."""


def has_many_bytes(target: CpuTarget) -> bool:
    """Whether the kernel is for a processor."""
    return target.dot == "pairs"


def write_many_bytes_product(module: Module, target: CpuTarget) -> None:
    """`many_int8`."""
    f = module.function("many_int8", [("args", PTR), ("first", I64), ("last", I64)])
    product = _Product(f, target)
    with f.loop(f.parameter("first"), f.parameter("last")) as unit:
        product.write(unit)
    f.finish()


class _Near(NamedTuple):
    """What is in a core's nearest cache of some groups of 16 columns."""

    digits: Value
    """Of four elements of each column 64 bytes of magnitudes and 64 of signs, see `dots.Parted`."""
    below_0: Value
    """int32 `[groups, 16]`: the magnitudes of weights below 0, summed."""
    scales: Value
    """float32 `[groups, 16]`."""


class _Product:
    """One unit after the other."""

    def __init__(self, f: Function, target: CpuTarget) -> None:
        args = f.parameter("args")
        self._f, self._target = f, target
        self._digits, self._inputs, self._output = (argument(f, args, i, PTR) for i in range(3))
        self._bias = argument(f, args, 3)
        self._out_features, self._in_features, self._num_rows = (argument(f, args, i) for i in (4, 5, 6))
        self._y_stride, self._adds = argument(f, args, 8), argument(f, args, 9)
        self._scales, self._input_scales = argument(f, args, 10, PTR), argument(f, args, 12, PTR)
        self._group, self._to_next = argument(f, args, 14), argument(f, args, 15)
        self._num_groups = self._in_features // self._group
        self._near = _Near(
            digits=f.buffer("i8", 2 * _DEPTH * TILE),
            below_0=f.buffer(I32, _DEPTH // PIECE * TILE),
            scales=f.buffer(FLOAT, _DEPTH // PIECE * TILE),
        )
        self._sums = f.buffer(FLOAT, TILE_ROWS * TILE)

    def write(self, unit: Value) -> None:
        f = self._f
        parts = (self._num_rows + (TILE_ROWS - 1)) // TILE_ROWS
        tile, row = unit // parts, (unit % parts) * TILE_ROWS
        num_rows = at_most(f, self._num_rows - row, TILE_ROWS)
        at_once = f.constant(I64, _DEPTH) // self._group
        with f.loop(0, self._num_groups, at_once) as group:
            num_groups = at_most(f, self._num_groups - group, at_once)
            is_last = (group + at_once) >= self._num_groups
            begin = group * self._group * TILE
            digits = f.at(self._digits, tile * self._in_features * TILE + begin, "i8")
            ahead = f.choose(is_last, self._to_next - begin, at_once * self._group * TILE, I64)
            self._bring_near(digits, tile, group, num_groups)
            with f.loop(0, num_rows, BLOCK) as i:
                sums = f.at(self._sums, i * TILE, FLOAT)
                with f.when(group.equals(0)):
                    for j in range(BLOCK):
                        f.store(f.constant(FLOATS, 0.0), f.at(sums, j * TILE, FLOAT), aligned=64)
                for j in range(_LINES_AHEAD):
                    f.fetch_soon(f.at(digits, ahead + i * (64 * _LINES_AHEAD // BLOCK) + 64 * j, "i8"))
                self._add((row + i) * self._num_groups + group * BLOCK, num_groups, sums)
                with f.when(is_last):
                    self._store(row + i, at_most(f, num_rows - i, BLOCK), tile * TILE, sums)

    def _bring_near(self, digits: Value, tile: Value, group: Value, num_groups: Value) -> None:
        """Some groups of 16 columns, in parts."""
        f, near = self._f, self._near
        scales = f.at(self._scales, (tile * self._num_groups + group) * TILE, HALF)
        with f.loop(0, num_groups) as g:
            halves = f.load(_HALVES, f.at(scales, g * TILE, HALF), aligned=2)
            f.store(f.convert("fpext", halves, FLOATS), f.at(near.scales, g * TILE, FLOAT), aligned=64)
            totals = [f.variable(_INTS, 0) for _ in range(2)]
            with f.loop(g * self._group, (g + 1) * self._group, 4) as k:
                for half, total in enumerate(totals):
                    place = k * TILE + 4 * _LANES * half
                    weights = parted(f, f.load(_INTS, f.at(digits, place, "i8")))
                    total.value = total.value + below_0(f, weights)
                    f.store(weights.magnitudes, f.at(near.digits, place + k * TILE, "i8"), aligned=32)
                    f.store(weights.signs, f.at(near.digits, place + k * TILE + 4 * TILE, "i8"), aligned=32)
            for half, total in enumerate(totals):
                f.store(total.value, f.at(near.below_0, g * TILE + _LANES * half, I32), aligned=32)

    def _add(self, first: Value, num_groups: Value, sums: Value) -> None:
        """A block of rows times some groups of 16 columns, which are near.

        Args:
            first: which of all groups of the rows, counted in their order in memory, is the block's first one.
            num_groups: of each row.
            sums: float32 `[4, 16]`, to be added to.
        """
        f = self._f
        inputs, scales = f.at(self._inputs, first * self._group, "i8"), f.at(self._input_scales, first, FLOAT)
        ways = (
            (self._group.equals(_STRAIGHT), _STRAIGHT, self._straight),
            (self._group.differs(_STRAIGHT), self._group, self._looped),
        )
        for condition, size, dots_of in ways:
            with f.when(condition), f.loop(0, num_groups) as g:
                begin = f.at(self._near.below_0, g * TILE, I32)
                dots = dots_of(f.at(inputs, g * BLOCK * size, "i8"), self._near_digits(g * size), begin)
                self._scale(dots, f.at(scales, g * BLOCK, FLOAT), f.at(self._near.scales, g * TILE, FLOAT), sums)

    def _near_digits(self, element: Value) -> Value:
        return self._f.at(self._near.digits, element * (2 * TILE), "i8")

    def _straight(self, inputs: Value, digits: Value, begin: Value) -> _Dots:
        """The dots of a group of 32, which begin with what is there."""
        dots = self._begun(begin)
        for four in range(_STRAIGHT // 4):
            self._add_four(inputs, digits, four, dots)
        return dots

    def _looped(self, inputs: Value, digits: Value, begin: Value) -> _Dots:
        """Those of a group of another size."""
        f, dots = self._f, self._begun(begin)
        with f.loop(0, self._group, PIECE) as k:
            its_inputs, its_digits = f.at(inputs, k * BLOCK, "i8"), f.at(digits, k * (2 * TILE), "i8")
            for four in range(PIECE // 4):
                self._add_four(its_inputs, its_digits, four, dots)
        return dots

    def _begun(self, begin: Value) -> _Dots:
        f = self._f
        halves = [f.load(_INTS, f.at(begin, half, I32), aligned=32) for half in (0, _LANES)]
        return [[f.variable(_INTS, half) for half in halves] for _ in range(BLOCK)]

    def _add_four(self, inputs: Value, digits: Value, four: int, dots: _Dots) -> None:
        """Four elements of each row and column."""
        f, line = self._f, 4 * TILE
        weights = [
            Parted(*(f.load(_INTS, f.at(digits, place, "i8"), aligned=32) for place in (at, at + line)))
            for at in (2 * line * four, 2 * line * four + 4 * _LANES)
        ]
        for i, its_dots in enumerate(dots):
            place = f.at(inputs, 4 * (four * BLOCK + i), "i8")
            numbers = f.splat(f.load(I32, place, aligned=4), _LANES)
            for weight, total in zip(weights, its_dots, strict=True):
                total.value = _in_this_order(f, total.value + parted_dots(f, weight, numbers))

    def _scale(self, dots: _Dots, row_scales: Value, column_scales: Value, sums: Value) -> None:
        """Those of a group into the rows' sums, as `quantized_product` does it."""
        f = self._f
        of_columns = [f.load(_HALF_FLOATS, f.at(column_scales, half, FLOAT), aligned=32) for half in (0, _LANES)]
        for i, its_dots in enumerate(dots):
            of_row = f.splat(f.load(FLOAT, f.at(row_scales, i, FLOAT), aligned=4), _LANES)
            for half, (scale, each) in enumerate(zip(of_columns, its_dots, strict=True)):
                place = f.at(sums, i * TILE + half * _LANES, FLOAT)
                before = f.load(_HALF_FLOATS, place, aligned=32)
                numbers = f.convert("sitofp", each.value, _HALF_FLOATS)
                f.store(f.fma(numbers, scale * of_row, before), place, aligned=32)

    def _store(self, row: Value, num_rows: Value, column: Value, sums: Value) -> None:
        """Sums of a block into results."""
        left = self._out_features - column
        by_columns(self._f, self._target, left, lambda mask: self._store_columns(row, num_rows, column, sums, mask))

    def _store_columns(self, row: Value, num_rows: Value, column: Value, sums: Value, mask: Value | None) -> None:
        f = self._f
        bias = bias_lanes(f, self._bias, column, mask)
        with f.loop(0, num_rows) as i:
            place = f.at(self._output, (row + i) * self._y_stride + column, FLOAT)
            total = f.load(FLOATS, f.at(sums, i * TILE, FLOAT), aligned=64)
            store_result(f, total + bias.value, place, self._adds, mask)


def _in_this_order(f: Function, sums: Value) -> Value:
    """The same; but LLVM takes it for another number. It would add products to each other first, and have more of
    them under way than there are registers."""
    return f.assign(sums.kind, f'call {sums.kind} asm "", "=x,0"({sums.kind} {sums.name})')

"""The kernel of products with weights of 8 and 4 bits, whose inputs are brought to 8 bits too: row by row, and in a
row group by group, so that no row knows of another.

A unit is a tile: 16 columns of the result. Of each of these rows of the weight four bytes lie side by side, 64
bytes in all, then the next four of each; of 4 bits the lower halves are the next four elements of each row, and
the upper halves the four behind them. Sums inside a group are whole numbers; group by group they are scaled and
added in float32, always in the same order. With weights d·s + m and inputs q·t of a group it is Σ d·q · s·t + m ·
t·Σ q, and since digits are stored as d + z, Σ (d + z)·q - z·Σ q is Σ d·q.

Arguments: weight, input (int8), output (float32), bias or 0, out_features, in_features, num_rows, elements of an
input row, elements of an output row, 1 to add to what the output holds, scales (float16 [tiles, groups, 16]),
minimums (likewise, or 0), scales of the inputs (float32 [num_rows, groups]), sums of the inputs (int32, likewise),
group_size, bytes from a chunk of the weight to the next one of the same thread.
"""

from typing import NamedTuple

from pagedchat.jit.cpu.ir import FLOAT, HALF, I32, I64, PTR, Function, Module, Value, Variable, vector
from pagedchat.jit.cpu.target import CpuTarget
from pagedchat.ops.cpu.dense_elements import argument
from pagedchat.ops.cpu.dense_product import ROW_COUNTS, write_row_blocks
from pagedchat.ops.cpu.dots import add_dots, digits_are_signed, small_dots, sums_as_shorts
from pagedchat.ops.cpu.vectors import bias_lanes, by_columns, store_result

TILE = 16
"""Columns of a unit."""
PIECE = 16
"""Elements of a row that are taken at a time; groups are multiples of it."""
TILES_TOGETHER = 2
"""Of 8 rows, where registers are many."""
LONGEST_GROUP = 128
"""Elements of a row that have a scale in common, at most."""

_FLOATS, _INTS = vector(TILE, FLOAT), vector(TILE, I32)
_AHEAD_BYTES = {8: 2048, 4: 8192}
"""How far ahead of a product its weight is fetched, by its bits: out of the tiles that come next, at the end of a
chunk out of the next one of the same thread."""
_LOW = 0x0F0F0F0F


def write_quantized_product(module: Module, target: CpuTarget, bits: int, *, minimums: bool) -> str:
    """`int8`, `int4`, `int8_min` or `int4_min`, which it returns."""
    most = 8 if target.has_wide_registers else 4
    counts = [count for count in ROW_COUNTS if count <= most]
    name = f"int{bits}_min" if minimums else f"int{bits}"
    for count in counts:
        _write_block(module, target, name, bits, count, minimums=minimums)
    write_row_blocks(module, name, counts, rows_at=6)
    return name


def zero_of(target: CpuTarget, bits: int) -> int:
    """What digits in memory are more than the numbers that they stand for."""
    return 8 if bits == 4 else 0 if digits_are_signed(target) else 128


def _write_block(module: Module, target: CpuTarget, name: str, bits: int, num_rows: int, *, minimums: bool) -> None:
    f = module.function(f"{name}_{num_rows}", [("args", PTR), ("first", I64), ("last", I64), ("row", I64)])
    args, row = f.parameter("args"), f.parameter("row")
    block = _Block(f, target, args, row, bits, num_rows, minimums=minimums)
    first, last = f.parameter("first"), f.parameter("last")
    together = TILES_TOGETHER if target.has_wide_registers and num_rows == ROW_COUNTS[0] else 1
    whole = last - (last - first) % together
    with f.loop(first, whole, together) as tile:
        block.write(tile, together, first, last)
    if together > 1:
        with f.loop(whole, last) as tile:
            block.write(tile, 1, first, last)
    f.finish()


class _Places(NamedTuple):
    """Where what belongs to a tile begins."""

    digits: Value
    scales: Value
    minimums: Value | None


class _Block:
    """Tiles of some rows, one or two at a time: then an input that is read serves both."""

    def __init__(
        self, f: Function, target: CpuTarget, args: Value, row: Value, bits: int, num_rows: int, *, minimums: bool
    ) -> None:
        self._f, self._target, self._bits, self._num_rows = f, target, bits, num_rows
        self._digits, self._bias = argument(f, args, 0, PTR), argument(f, args, 3)
        self._out_features, self._in_features = argument(f, args, 4), argument(f, args, 5)
        x_stride, self._y_stride, self._adds = argument(f, args, 7), argument(f, args, 8), argument(f, args, 9)
        self._scales = argument(f, args, 10, PTR)
        self._minimums = argument(f, args, 11, PTR) if minimums else None
        self._group, self._to_next = argument(f, args, 14), argument(f, args, 15)
        self._num_groups = self._in_features // self._group
        self._element_bytes = 2 * bits
        """Of a tile: an element of each of its rows."""
        self._tile_bytes = self._in_features * self._element_bytes
        self._output = f.at(argument(f, args, 2, PTR), row * self._y_stride, FLOAT)
        inputs = f.at(argument(f, args, 1, PTR), row * x_stride, "i8")
        self._inputs = [f.at(inputs, x_stride * i, "i8") for i in range(num_rows)]
        first_group = row * self._num_groups
        self._input_scales = f.at(argument(f, args, 12, PTR), first_group, FLOAT)
        self._input_sums = f.at(argument(f, args, 13, PTR), first_group, I32)

    def write(self, tile: Value, num_tiles: int, first: Value, last: Value) -> None:
        f = self._f
        sums = [[f.variable(_FLOATS, 0.0) for _ in self._inputs] for _ in range(num_tiles)]
        tiles = [self._places(tile + i) for i in range(num_tiles)]
        with f.loop(0, self._num_groups) as group:
            ahead = self._ahead(tile, num_tiles, group, first, last)
            whole = self._dots([each.digits for each in tiles], group, ahead)
            for each, its_sums, its_dots in zip(tiles, sums, whole, strict=True):
                scale = self._halves(each.scales, group)
                for i, dots in enumerate(its_dots):
                    self._add_group(its_sums[i], dots, scale, each.minimums, group, i)
        for i, its_sums in enumerate(sums):
            self._store((tile + i) * TILE, its_sums)

    def _ahead(self, tile: Value, num_tiles: int, group: Value, first: Value, last: Value) -> Value:
        """Bytes from where a group is to what is fetched meanwhile."""
        f, done = self._f, group * self._group * self._element_bytes
        some = _AHEAD_BYTES[self._bits]
        beyond = self._tile_bytes * (num_tiles - 1) + some
        ahead = f.choose((done + some) < self._tile_bytes, some, beyond, I64)
        left = (last - tile) * self._tile_bytes - done
        to_chunk = self._to_next - (last - first) * self._tile_bytes + ahead
        return f.choose(ahead < left, ahead, to_chunk, I64)

    def _places(self, tile: Value) -> "_Places":
        f = self._f
        first = tile * self._num_groups * TILE
        return _Places(
            f.at(self._digits, tile * self._tile_bytes, "i8"),
            f.at(self._scales, first, HALF),
            None if self._minimums is None else f.at(self._minimums, first, HALF),
        )

    def _halves(self, start: Value, group: Value) -> Value:
        """Of a group's 16 columns, as floats."""
        f = self._f
        return f.convert("fpext", f.load(_HALVES, f.at(start, group * TILE, HALF), aligned=2), _FLOATS)

    def _dots(self, digits: list[Value], group: Value, ahead: Value) -> list[list[Value]]:
        """Of one group: whole numbers, for each tile and row."""
        f = self._f
        start = -zero_of(self._target, self._bits)
        dots: list[list[list[Variable]]] = [[] for _ in digits]
        for i in range(self._num_rows):
            its_sum = f.load(I32, f.at(self._input_sums, self._num_groups * i + group, I32), aligned=4)
            begin = f.splat(its_sum * start, TILE) if start else f.constant(_INTS, 0)
            for its_dots in dots:
                its_dots.append(
                    [f.variable(_INTS, begin), *(f.variable(_INTS, 0) for _ in range(self._chains - 1))]
                )
        first = group * self._group
        with f.loop(first, first + self._group, PIECE) as k:
            self._add_piece([f.at(each, k * self._element_bytes, "i8") for each in digits], k, dots, ahead)
        return [[_summed([each.value for each in of_row]) for of_row in its_dots] for its_dots in dots]

    @property
    def _chains(self) -> int:
        """Sums that a row's dots of a group are spread over: where rows are few, one would wait for itself."""
        return {1: 4, 2: 2}.get(self._num_rows, 1)

    def _add_piece(self, digits: list[Value], k: Value, dots: list[list[list[Variable]]], ahead: Value) -> None:
        f = self._f
        lines = PIECE // 4 if self._bits == 8 else PIECE // 8
        if self._bits == 4 and sums_as_shorts(self._target):
            self._add_small_piece(digits, k, dots, ahead)
            return
        for line in range(lines):
            parts = [self._line(f.at(each, 64 * line, "i8"), ahead) for each in digits]
            for part in range(len(parts[0])):
                four_idx = line * len(parts[0]) + part
                for i, row_input in enumerate(self._inputs):
                    four = f.load(I32, f.at(row_input, k + 4 * four_idx, "i8"))
                    for its_parts, its_dots in zip(parts, dots, strict=True):
                        chain = its_dots[i][four_idx % self._chains]
                        chain.value = add_dots(f, self._target, chain.value, its_parts[part], four)

    def _add_small_piece(
        self, digits: list[Value], k: Value, dots: list[list[list[Variable]]], ahead: Value
    ) -> None:
        f = self._f
        for each, its_dots in zip(digits, dots, strict=True):
            parts = [part for line in range(PIECE // 8) for part in self._line(f.at(each, 64 * line, "i8"), ahead)]
            for row_input, chains in zip(self._inputs, its_dots, strict=True):
                fours = [f.load(I32, f.at(row_input, k + 4 * i, "i8")) for i in range(len(parts))]
                chains[0].value = chains[0].value + small_dots(f, parts, fours)

    def _line(self, at: Value, ahead: Value) -> list[Value]:
        """64 bytes of digits: of 8 bits 4 elements of each row, of 4 bits twice as many."""
        f = self._f
        f.fetch_soon(f.at(at, ahead, "i8"))
        both = f.load(_INTS, at, aligned=4)
        return [both] if self._bits == 8 else [both & _LOW, (both >> 4) & _LOW]

    def _add_group(
        self, total: Variable, dots: Value, scale: Value, minimums: Value | None, group: Value, row: int
    ) -> None:
        f = self._f
        at = self._num_groups * row + group
        input_scale = f.load(FLOAT, f.at(self._input_scales, at, FLOAT), aligned=4)
        numbers = f.convert("sitofp", dots, _FLOATS)
        total.value = f.fma(numbers, scale * f.splat(input_scale, TILE), total.value)
        if minimums is not None:
            its_sum = f.convert("sitofp", f.load(I32, f.at(self._input_sums, at, I32), aligned=4), FLOAT)
            each = f.splat(its_sum * input_scale, TILE)
            total.value = f.fma(self._halves(minimums, group), each, total.value)

    def _store(self, column: Value, sums: list[Variable]) -> None:
        left = self._out_features - column
        by_columns(self._f, self._target, left, lambda mask: self._store_columns(column, sums, mask))

    def _store_columns(self, column: Value, sums: list[Variable], mask: Value | None) -> None:
        f = self._f
        bias = bias_lanes(f, self._bias, column, mask)
        for i, total in enumerate(sums):
            place = f.at(self._output, self._y_stride * i + column, FLOAT)
            store_result(f, total.value + bias.value, place, self._adds, mask)


_HALVES = vector(TILE, HALF)


def _summed(parts: list[Value]) -> Value:
    while len(parts) > 1:
        parts = [parts[i] + parts[i + 1] for i in range(0, len(parts), 2)]
    return parts[0]

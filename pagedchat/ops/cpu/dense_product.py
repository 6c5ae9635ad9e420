"""The kernel of products with weights in float32 and bfloat16: a few rows times a weight that is read once, as
checkpoints have it.

A unit is a row of the weight, and so a column of the result. 32 of its elements are multiplied at a time by 32 of
the input, see `dense_elements`; inputs lie in the order for that, in runs of 32 that are filled up with zeros. Each
column of each row has 16 sums of its own, one for each lane, which are added in the same order whatever is computed
beside them, by 8 rows together (`dense_tile`) too: a row's numbers never depend on its company.

Arguments: weight, input, output, bias or 0 (float32), out_features, in_features, num_rows, elements of an input
row, elements of an output row, 1 to add to what the output holds, bytes from a chunk of the weight to the next one
of the same thread.
"""

from pagedchat.jit.cpu.ir import FLOAT, I64, PTR, Function, Module, Value, Variable
from pagedchat.jit.cpu.target import CpuTarget
from pagedchat.ops.cpu.dense_elements import RUN, DenseElement, argument
from pagedchat.ops.cpu.dense_tile import ROWS as BLOCK
from pagedchat.ops.cpu.dense_tile import write_dense_tile
from pagedchat.ops.cpu.vectors import FLOATS, summed_by_lane

ROW_COUNTS = (8, 4, 2, 1)
"""Rows that are computed together, at most."""

_MOST_SUMS, _FEW_SUMS, _MOST_COLUMNS = 24, 4, 8
"""Sums of 16 floats that registers hold beside what is multiplied: where these are as wide and 32 of them, and
where not; and the columns that they are of at most. An input that is read serves all columns."""
_AHEAD_BYTES, _AHEAD_BYTES_OF_ONE = 1024, 4096
"""How far ahead of a product its weight is fetched: from where a row ends, out of the columns that come next; and
where one column is multiplied at a time."""


def write_dense_product(module: Module, target: CpuTarget, element: DenseElement) -> None:
    """`dense_f32`, `dense_bf16` or `dense_rounded`."""
    sums = _MOST_SUMS if target.has_wide_registers else _FEW_SUMS
    row_counts = [count for count in ROW_COUNTS if count <= sums // 2]
    name = f"dense_{element.name}"
    for num_rows in row_counts:
        if num_rows == BLOCK:
            write_dense_tile(module, element, f"{name}_{num_rows}")
        else:
            _write_block(module, element, num_rows, _columns_together(target, num_rows))
    write_row_blocks(module, name, row_counts, rows_at=6)


def _columns_together(target: CpuTarget, num_rows: int) -> int:
    """As many as there are registers for; with AVX2 a single row takes one after the other, so that its weight is
    read in the order of memory (Zen 3, Qwen2.5-0.5B in bfloat16: 63 ms a step, and 79 with four columns)."""
    if target.has_wide_registers:
        return min(_MOST_SUMS // num_rows, _MOST_COLUMNS)
    return 1 if num_rows == 1 and target.is_x86 else _FEW_SUMS // num_rows


def write_row_blocks(module: Module, name: str, row_counts: list[int], *, rows_at: int) -> None:
    """All rows in blocks: `name` calls `name_8`, `name_4` and so on, each with the row that it begins with.

    Args:
        module: has them.
        name: of the kernel.
        row_counts: sizes of the blocks, the largest first.
        rows_at: which argument is the number of rows.
    """
    f = module.function(name, [("args", PTR), ("first", I64), ("last", I64)])
    args, first, last = (f.parameter(each) for each in ("args", "first", "last"))
    num_rows = argument(f, args, rows_at)
    row = f.variable(I64, 0)
    for count in row_counts:
        with f.forever() as fewer:
            left = num_rows - row.value
            f.leave(fewer, left < count)
            f.line(
                f"call void @{name}_{count}(ptr {args.name}, i64 {first.name}, i64 {last.name}, "
                f"i64 {row.value.name})"
            )
            row.value = row.value + count
    f.finish()


def _write_block(module: Module, element: DenseElement, num_rows: int, num_columns: int) -> None:
    """So many rows, and as many columns at a time as there are registers for."""
    f = module.function(
        f"dense_{element.name}_{num_rows}", [("args", PTR), ("first", I64), ("last", I64), ("row", I64)]
    )
    args, first, last, row = (f.parameter(each) for each in ("args", "first", "last", "row"))
    block = _Block(f, args, element, row, num_rows)
    whole = last - (last - first) % num_columns
    with f.loop(first, whole, num_columns) as column:
        block.write(column, num_columns, first, last)
    if num_columns > 1:
        with f.loop(whole, last) as column:
            block.write(column, 1, first, last)
    f.finish()


class _Block:
    """Some columns of some rows, for as long as the inputs go on."""

    def __init__(self, f: Function, args: Value, element: DenseElement, row: Value, num_rows: int) -> None:
        self._f, self._element, self._num_rows = f, element, num_rows
        self._weight, self._bias = argument(f, args, 0, PTR), argument(f, args, 3)
        self._in_features = argument(f, args, 5)
        x_stride, self._y_stride = argument(f, args, 7), argument(f, args, 8)
        self._adds, self._to_next = argument(f, args, 9), argument(f, args, 10)
        first_input = f.at(argument(f, args, 1, PTR), row * x_stride, element.input_kind)
        self._inputs = [f.at(first_input, x_stride * i, element.input_kind) for i in range(num_rows)]
        self._output = f.at(argument(f, args, 2, PTR), row * self._y_stride, FLOAT)

    def write(self, column: Value, num_columns: int, first: Value, last: Value) -> None:
        f, element = self._f, self._element
        row_bytes = self._in_features * element.size
        to_chunk = self._to_next - (column - first) * row_bytes
        to_next = f.choose((column + num_columns) < last, row_bytes * num_columns, to_chunk, I64)
        some = _AHEAD_BYTES_OF_ONE if num_columns == 1 else _AHEAD_BYTES
        behind = to_next - row_bytes + some
        weights = [f.at(self._weight, (column + j) * self._in_features, element.kind) for j in range(num_columns)]
        sums = [[f.variable(FLOATS, 0.0) for _ in range(self._num_rows)] for _ in weights]
        whole = self._in_features - self._in_features % RUN
        with f.loop(0, whole, RUN) as k:
            runs = []
            is_within = (k * element.size + some) < row_bytes
            ahead = f.choose(is_within, some, behind, I64)
            for weight in weights:
                at = f.at(weight, k, element.kind)
                f.fetch_soon(f.at(at, ahead, "i8"))
                runs.append(element.run(f, at))
            self._add_run(k, runs, sums)
        rest = self._in_features - whole
        with f.when(rest.differs(0)):
            places = [f.at(each, whole, element.kind) for each in weights]
            self._add_run(whole, [element.part_of_run(f, at, rest) for at in places], sums)
        self._store(column, sums)

    def _add_run(self, k: Value, runs: list[list[Value]], sums: list[list[Variable]]) -> None:
        f, element = self._f, self._element
        for row, row_input in enumerate(self._inputs):
            for i in range(element.num_vectors):
                at = f.at(row_input, k + element.input_lanes * i, element.input_kind)
                numbers = element.inputs(f, at, aligned=2)
                for run, its_sums in zip(runs, sums, strict=True):
                    its_sums[row].value = element.added(f, its_sums[row].value, run[i], numbers)

    def _store(self, column: Value, sums: list[list[Variable]]) -> None:
        """Sums of the lanes, in the order of `folded` whichever way they are made."""
        f = self._f
        flat = [each.value for its_sums in sums for each in its_sums]
        totals = summed_by_lane(f, flat) if len(flat) > 2 else [f.folded(each, 16) for each in flat]
        for i, total in enumerate(totals):
            self._store_one(column + i // self._num_rows, i % self._num_rows, total)

    def _store_one(self, column: Value, row: int, total: Value) -> None:
        f = self._f
        place = f.at(self._output, self._y_stride * row + column, FLOAT)
        result = f.variable(FLOAT, total)
        with f.when(self._bias.differs(0)):
            bias = f.load(FLOAT, f.at(f.convert("inttoptr", self._bias, PTR), column, FLOAT), aligned=4)
            result.value = result.value + bias
        with f.when(self._adds.differs(0)):
            result.value = result.value + f.load(FLOAT, place, aligned=4)
        f.store(result.value, place, aligned=4)

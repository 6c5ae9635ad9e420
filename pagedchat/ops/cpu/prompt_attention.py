"""The kernel of attention of many tokens of a sequence over a paged cache by token, causal, with an online
softmax as in `attention`, whose cache, tables and queries it has.

A unit is a tile for a KV head: a few tokens that follow each other, with all query heads that share it, 64
queries in all. 48 keys at a time are turned over into `[head_dim, 48]`, in float32, and their values lie beside
them; 8 queries then have their 8 times 48 scores in registers, or 4 of them 16 after 16 where registers are few and
narrow. Keys are taken from a multiple of 48 on: how a prompt is cut into steps changes no number.

Arguments: queries (float32, already scaled), output (float32 [num_rows, num_heads, head_dim]), key cache, value
cache, block tables (int64), tiles (int64 [num_tiles, 4]: first row, rows, row of the block tables, position of
the first token), num_heads, num_kv_heads, head_dim, block_size, ids in a row of the block tables, elements from
a row's queries to the next one's, tokens that a token sees, sinks as `attention` has them or 0.
"""

from typing import NamedTuple

from pagedchat.jit.cpu.ir import FLOAT, I1, I16, I64, PTR, Function, Module, Value, Variable, vector
from pagedchat.jit.cpu.target import CpuTarget
from pagedchat.ops.cpu.attention import WIDEST_HEAD, first_score
from pagedchat.ops.cpu.dense_elements import argument
from pagedchat.ops.cpu.vectors import FLOATS, INTS, LANES, exponential, transposed

QUERIES = 64
"""Of a unit, at most."""

_KEYS = 48
"""That are brought near together."""
_VECTORS = _KEYS // LANES
_LOWEST = -3.0e38


class _Shape(NamedTuple):
    """What registers hold."""

    group: int
    """Queries that are worked on together."""
    vectors: int
    """Of 16 keys, whose scores they have together."""
    values: int
    """Vectors of 16 elements of their results."""
    steps: int
    """Elements of a head, or keys, in a turn of a loop: numbers that 16 is a multiple of."""


_WIDE, _NARROW = _Shape(8, 3, 2, 1), _Shape(4, 1, 1, 4)


def write_prompt_attention(module: Module, target: CpuTarget, element: str) -> None:
    """`prompt_attention_f32` or `prompt_attention_bf16`, by what the cache holds; bytes have none."""
    shape = _WIDE if target.has_wide_registers else _NARROW
    f = module.function(f"prompt_attention_{element}", [("args", PTR), ("first", I64), ("last", I64)])
    attention = _Attention(f, element, shape)
    with f.loop(f.parameter("first"), f.parameter("last")) as unit:
        attention.write(unit)
    f.finish()


class _Attention:
    """One unit after the other."""

    def __init__(self, f: Function, element: str, shape: _Shape) -> None:
        args = f.parameter("args")
        self._f, self._element, self._shape = f, element, shape
        self._queries, self._output, self._keys, self._values, self._tables, self._tiles = (
            argument(f, args, i, PTR) for i in range(6)
        )
        self._num_heads, self._num_kv_heads, self._head_dim, self._block_size = (
            argument(f, args, i) for i in (6, 7, 8, 9)
        )
        self._table_stride, self._query_stride, self._window = (argument(f, args, i) for i in (10, 11, 12))
        self._sinks = argument(f, args, 13)
        self._shared = self._num_heads // self._num_kv_heads
        self._near_keys, self._near_values = (f.buffer(FLOAT, _KEYS * WIDEST_HEAD) for _ in range(2))
        self._results = f.buffer(FLOAT, QUERIES * WIDEST_HEAD)
        self._weights = f.buffer(FLOAT, shape.group * _KEYS)
        self._largest, self._totals = (f.buffer(FLOAT, QUERIES) for _ in range(2))
        self._starts, self._positions, self._places = (f.buffer(I64, QUERIES) for _ in range(3))

    def write(self, unit: Value) -> None:
        f = self._f
        tile, kv_head = f.at(self._tiles, (unit // self._num_kv_heads) * 4, I64), unit % self._num_kv_heads
        row, num_rows, sequence, position = (f.load(I64, f.at(tile, i, I64), aligned=8) for i in range(4))
        first_head = kv_head * self._shared
        num_queries = num_rows * self._shared
        group_size = self._shape.group
        groups = (num_queries + (group_size - 1)) // group_size
        self._begin(row, position, first_head, num_queries, groups * group_size)
        table = f.at(self._tables, sequence * self._table_stride, I64)
        end = position + num_rows
        lowest = position + 1 - self._window
        lowest = f.choose(lowest < 0, 0, lowest, I64)
        with f.loop(lowest - lowest % _KEYS, end, _KEYS) as key:
            self._bring_near(table, key, end, kv_head)
            with f.loop(0, groups) as group:
                self._add_group(group * group_size, key)
        self._finish(row, first_head, num_queries)

    def _begin(self, row: Value, position: Value, first_head: Value, num_queries: Value, padded: Value) -> None:
        """Where each query is, and nothing of its result; the last one is there several times."""
        f = self._f
        with f.loop(0, padded) as i:
            query = f.choose(i < num_queries, i, num_queries - 1, I64)
            its_row, head = query // self._shared, query % self._shared
            start = (row + its_row) * self._query_stride + (first_head + head) * self._head_dim
            f.store(start, f.at(self._starts, i, I64), aligned=8)
            f.store(position + its_row, f.at(self._positions, i, I64), aligned=8)
            largest, total = first_score(f, self._sinks, first_head + head, f.constant(I1, 1))
            f.store(largest, f.at(self._largest, i, FLOAT), aligned=4)
            f.store(total, f.at(self._totals, i, FLOAT), aligned=4)
            with f.loop(0, self._head_dim, LANES) as k:
                f.store(f.constant(FLOATS, 0.0), f.at(self._results, i * WIDEST_HEAD + k, FLOAT), aligned=64)

    def _bring_near(self, table: Value, key: Value, end: Value, kv_head: Value) -> None:
        """Keys `[head_dim, 48]` and values `[48, head_dim]`; behind the last token it is there again."""
        f = self._f
        with f.loop(0, _KEYS) as i:
            token = f.choose(key + i < end, key + i, end - 1, I64)
            block = f.load(I64, f.at(table, token // self._block_size, I64), aligned=8)
            slot = block * self._block_size + token % self._block_size
            place = (slot * self._num_kv_heads + kv_head) * self._head_dim
            f.store(place, f.at(self._places, i, I64), aligned=8)
            with f.loop(0, self._head_dim, LANES) as k:
                at = f.at(self._near_values, i * WIDEST_HEAD + k, FLOAT)
                f.store(self._cached(self._values, place + k), at, aligned=64)
        with f.loop(0, _KEYS, LANES) as first:
            places = [f.load(I64, f.at(self._places, first + i, I64), aligned=8) for i in range(LANES)]
            with f.loop(0, self._head_dim, LANES) as k:
                square = transposed(f, [self._cached(self._keys, place + k) for place in places])
                for lane, each in enumerate(square):
                    f.store(each, f.at(self._near_keys, (k + lane) * _KEYS + first, FLOAT), aligned=64)

    def _add_group(self, first: Value, key: Value) -> None:
        f = self._f
        shrinks = [self._weigh(i, first + i, key, scores) for i, scores in enumerate(self._scores(first))]
        width = self._shape.values
        whole = self._head_dim - self._head_dim % (width * LANES)
        with f.loop(0, whole, width * LANES) as k:
            self._add_values(first, k, shrinks, width)
        if width > 1:
            with f.loop(whole, self._head_dim, LANES) as k:
                self._add_values(first, k, shrinks, 1)

    def _scores(self, first: Value) -> list[list[Value]]:
        """Some queries times 48 keys, in vectors of 16."""
        f = self._f
        starts = [f.load(I64, f.at(self._starts, first + i, I64), aligned=8) for i in range(self._shape.group)]
        queries = [f.at(self._queries, start, FLOAT) for start in starts]
        parts = [self._scores_of(queries, j) for j in range(0, _VECTORS, self._shape.vectors)]
        return [[each for its_scores in of_query for each in its_scores] for of_query in zip(*parts, strict=True)]

    def _scores_of(self, queries: list[Value], part: int) -> list[list[Value]]:
        """The same, times as many keys as registers are for."""
        f = self._f
        some = range(part, part + self._shape.vectors)
        sums = [[f.variable(FLOATS, 0.0) for _ in some] for _ in queries]
        with f.loop(0, self._head_dim, self._shape.steps) as first:
            for k in self._turn(first):
                keys = [
                    f.load(FLOATS, f.at(self._near_keys, k * _KEYS + j * LANES, FLOAT), aligned=64) for j in some
                ]
                _add_products(f, [f.at(query, k, FLOAT) for query in queries], keys, sums)
        return [[each.value for each in its_sums] for its_sums in sums]

    def _weigh(self, i: int, query: Value, key: Value, scores: list[Value]) -> Value:
        """Scores into weights beside the largest score so far; -> by what all before it shrinks."""
        f = self._f
        position = f.load(I64, f.at(self._positions, query, I64), aligned=8)
        largest_at, total_at = f.at(self._largest, query, FLOAT), f.at(self._totals, query, FLOAT)
        masks = [self._seen(key + j * LANES, position) for j in _THREE]
        scores = [f.choose(mask, each, _LOWEST, FLOATS) for mask, each in zip(masks, scores, strict=True)]
        before = f.load(FLOAT, largest_at, aligned=4)
        most = f.largest(f.largest(scores[0], scores[1]), scores[2])
        largest = f.largest(before, f.folded(most, LANES, "largest"))
        shrink = exponential(f, f.splat(before - largest, LANES))
        weights = [
            f.choose(mask, exponential(f, each - f.splat(largest, LANES)), 0.0, FLOATS)
            for mask, each in zip(masks, scores, strict=True)
        ]
        for j, weight in enumerate(weights):
            f.store(weight, f.at(self._weights, i * _KEYS + j * LANES, FLOAT), aligned=64)
        f.store(largest, largest_at, aligned=4)
        sum_so_far = f.load(FLOAT, total_at, aligned=4) * f.lane(shrink, 0)
        f.store(sum_so_far + f.folded(weights[0] + weights[1] + weights[2], LANES), total_at, aligned=4)
        return shrink

    def _seen(self, key: Value, position: Value) -> Value:
        """Of 16 keys, those that a token at a position sees."""
        f = self._f
        until = f.first_lanes(_within(f, position + 1 - key), LANES)
        before = f.first_lanes(_within(f, position + 1 - self._window - key), LANES)
        return until & f.unlike(before)

    def _add_values(self, first: Value, k: Value, shrinks: list[Value], width: int) -> None:
        """To 16 or 32 elements of the results of 8 queries."""
        f = self._f
        places = [
            [f.at(self._results, (first + i) * WIDEST_HEAD + k + j * LANES, FLOAT) for j in range(width)]
            for i in range(self._shape.group)
        ]
        sums = [
            [f.variable(FLOATS, f.load(FLOATS, place, aligned=64) * shrink) for place in its_places]
            for its_places, shrink in zip(places, shrinks, strict=True)
        ]
        with f.loop(0, _KEYS, self._shape.steps) as first_key:
            for key in self._turn(first_key):
                at = key * WIDEST_HEAD + k
                values = [
                    f.load(FLOATS, f.at(self._near_values, at + j * LANES, FLOAT), aligned=64) for j in range(width)
                ]
                weights = [f.at(self._weights, key + i * _KEYS, FLOAT) for i in range(self._shape.group)]
                _add_products(f, weights, values, sums)
        for its_places, its_sums in zip(places, sums, strict=True):
            for place, each in zip(its_places, its_sums, strict=True):
                f.store(each.value, place, aligned=64)

    def _turn(self, first: Value) -> list[Value]:
        """What a turn of a loop is for."""
        return [first, *(first + i for i in range(1, self._shape.steps))]

    def _finish(self, row: Value, first_head: Value, num_queries: Value) -> None:
        f = self._f
        with f.loop(0, num_queries) as i:
            total = f.splat(f.load(FLOAT, f.at(self._totals, i, FLOAT), aligned=4), LANES)
            head = (row + i // self._shared) * self._num_heads + first_head + i % self._shared
            with f.loop(0, self._head_dim, LANES) as k:
                result = f.load(FLOATS, f.at(self._results, i * WIDEST_HEAD + k, FLOAT), aligned=64) / total
                f.store(result, f.at(self._output, head * self._head_dim + k, FLOAT), aligned=4)

    def _cached(self, cache: Value, place: Value) -> Value:
        f = self._f
        if self._element == "f32":
            return f.load(FLOATS, f.at(cache, place, FLOAT), aligned=4)
        halves = f.load(vector(LANES, I16), f.at(cache, place, I16), aligned=2)
        return f.convert("bitcast", f.convert("zext", halves, INTS) << 16, FLOATS)


_THREE = range(_VECTORS)


def _add_products(f: Function, numbers: list[Value], vectors: list[Value], sums: list[list[Variable]]) -> None:
    """Each number, by its address, times each vector."""
    for number, its_sums in zip(numbers, sums, strict=True):
        everywhere = f.splat(f.load(FLOAT, number, aligned=4), LANES)
        for each, total in zip(vectors, its_sums, strict=True):
            total.value = f.fma(everywhere, each, total.value)


def _within(f: Function, count: Value) -> Value:
    """Brought to 0 to 16, which is all that a mask needs to know."""
    count = f.choose(count < 0, 0, count, I64)
    return f.choose(count < LANES, count, LANES, I64)

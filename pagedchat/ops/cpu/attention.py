"""The kernel of attention of single tokens over a paged cache by token, `[num_slots, num_kv_heads, head_dim]`, of
floats or of bytes with scales (`ops.cache.byte_cache`), with an online softmax (Milakov and Gimelshein 2018, arXiv
1805.02867): 16 tokens at a time, in the order of the sequence.

A unit is a part of the tokens for a KV head of a few rows of one sequence, each a token longer than the one before,
with all query heads that share it: so keys and values are read once. 16 tokens' are copied side by side, in
float32, and as many queries as see all of them are worked on four at a time, the others one by one, by the same
operations in the same order: a query's numbers do not depend on those beside it. Of the last tokens there may be
fewer than 16; then the last one is there several times, and counts once. Where rows have one part the output is the
result. Where they have more it holds each part's sum of values, not yet divided, and `merge_attention` brings them
together: parts begin at the same tokens of every sequence, and one that a row does not have adds zeros, so that a
row's numbers do not depend on others.

Arguments of `merge_attention`: the output of parts, what was largest and the sums of the weights, result
(float32 [num_rows, num_heads, head_dim]), parts, num_rows times num_heads, head_dim. A unit is a head of a row.

Arguments of `attention`: queries (float32, already scaled), output (float32 [num_rows, num_heads, head_dim]),
key cache, value cache, block tables (int64), tokens of each row's sequence (int64), num_heads, num_kv_heads,
head_dim, block_size, ids in a row of the block tables, elements from a row's queries to the next one's, tokens
that a token sees, parts, tokens of a part, num_rows, what was largest and the sums of the weights of parts
(float32 [2, parts, num_rows, num_heads], written where there are several; the output is then [parts, num_rows,
num_heads, head_dim]), runs of rows (int64 [num_runs, 2]: the first one, how many; with a window that does not show
everything no more than one), for a cache of bytes those of a page and where its scales begin, else zeros, and sinks
(float32 [num_heads]) or 0: a score that each query of a head has besides, of a token without a value (Xiao et al.
2023, arXiv 2309.17453, as gpt-oss learns it).
"""

from pagedchat.jit.cpu.ir import FLOAT, I1, I8, I16, I64, PTR, Function, Module, Value, Variable, vector
from pagedchat.ops.cpu.byte_elements import BYTE_ELEMENTS, BYTES, BytePages, floats_of, load_scale
from pagedchat.ops.cpu.dense_elements import argument
from pagedchat.ops.cpu.vectors import FLOATS, INTS, LANES, exponential, gathered

MOST_QUERIES = 64
"""Query heads that may share a KV head, and queries of a unit."""
MOST_TOGETHER = 16
"""Rows of a unit, at most: others have something to do too."""

WIDEST_HEAD = 256
"""Elements of a head, at most."""

TOGETHER = 4
"""Queries that are worked on together."""
_VALUES = 4
"""Vectors of each of their results, that registers hold."""
_LOWEST = -3.0e38


def write_attention(module: Module, element: str) -> None:
    """`attention_f32`, `attention_bf16`, `attention_int8` or `attention_fp8`, by what the cache holds."""
    f = module.function(f"attention_{element}", [("args", PTR), ("first", I64), ("last", I64)])
    attention = _Attention(f, element)
    with f.loop(f.parameter("first"), f.parameter("last")) as unit:
        attention.write(unit)
    f.finish()


def write_merge(module: Module) -> None:
    """`merge_attention`."""
    f = module.function("merge_attention", [("args", PTR), ("first", I64), ("last", I64)])
    args = f.parameter("args")
    outputs, statistics, result = (argument(f, args, i, PTR) for i in range(3))
    parts, num_heads, head_dim = (argument(f, args, i) for i in (3, 4, 5))
    totals = f.at(statistics, parts * num_heads, FLOAT)
    with f.loop(f.parameter("first"), f.parameter("last")) as head:
        largest, total = f.variable(FLOAT, _LOWEST), f.variable(FLOAT, 0.0)
        with f.loop(0, parts) as part:
            at = f.at(statistics, part * num_heads + head, FLOAT)
            largest.value = f.largest(largest.value, f.load(FLOAT, at, aligned=4))

        def share(part: Value) -> Value:
            its_largest = f.load(FLOAT, f.at(statistics, part * num_heads + head, FLOAT), aligned=4)
            return exponential(f, f.splat(its_largest - largest.value, LANES))

        with f.loop(0, parts) as part:
            its_total = f.load(FLOAT, f.at(totals, part * num_heads + head, FLOAT), aligned=4)
            total.value = total.value + f.lane(share(part), 0) * its_total
        with f.loop(0, head_dim, LANES) as k:
            values = f.variable(FLOATS, 0.0)
            with f.loop(0, parts) as part:
                at = f.at(outputs, (part * num_heads + head) * head_dim + k, FLOAT)
                values.value = f.fma(share(part), f.load(FLOATS, at, aligned=4), values.value)
            divided = values.value / f.splat(total.value, LANES)
            f.store(divided, f.at(result, head * head_dim + k, FLOAT), aligned=4)
    f.finish()


def first_score(f: Function, sinks: Value, head: Value, has_sink: Value) -> tuple[Value, Value]:
    """The largest score of a query and the sum of weights beside it, before any key: those of its sink, if it has
    one, else nothing."""
    largest, total = f.variable(FLOAT, _LOWEST), f.variable(FLOAT, 0.0)
    with f.when(sinks.differs(0) & has_sink):
        largest.value = f.load(FLOAT, f.at(f.convert("inttoptr", sinks, PTR), head, FLOAT), aligned=4)
        total.value = 1.0
    return largest.value, total.value


class _Attention:
    def __init__(self, f: Function, element: str) -> None:
        args = f.parameter("args")
        self._f, self._element = f, element
        self._queries, self._output, self._keys, self._values, self._tables, self._lens = (
            argument(f, args, i, PTR) for i in range(6)
        )
        self._num_heads, self._num_kv_heads, self._head_dim, self._block_size = (
            argument(f, args, i) for i in (6, 7, 8, 9)
        )
        self._table_stride, self._query_stride, self._window = (argument(f, args, i) for i in (10, 11, 12))
        self._parts, self._part_tokens, self._num_rows = (argument(f, args, i) for i in (13, 14, 15))
        self._statistics, self._runs = argument(f, args, 16, PTR), argument(f, args, 17, PTR)
        if element in BYTE_ELEMENTS:
            sizes = (self._block_size, self._num_kv_heads, self._head_dim)
            self._pages = BytePages(*sizes, argument(f, args, 18), argument(f, args, 19))
            self._scale_places = f.buffer(I64, LANES)
        self._sinks = argument(f, args, 20)
        self._shared = self._num_heads // self._num_kv_heads
        self._starts, self._ends, self._heads = (f.buffer(I64, MOST_QUERIES) for _ in range(3))
        self._largest, self._total = (f.buffer(FLOAT, MOST_QUERIES) for _ in range(2))
        self._weights, self._places = f.buffer(FLOAT, TOGETHER * LANES), f.buffer(I64, LANES)
        self._near_keys, self._near_values = (f.buffer(FLOAT, LANES * WIDEST_HEAD) for _ in range(2))

    def write(self, unit: Value) -> None:
        f = self._f
        part, head_of_run = unit % self._parts, unit // self._parts
        run, kv_head = (
            f.at(self._runs, head_of_run // self._num_kv_heads * 2, I64),
            head_of_run % self._num_kv_heads,
        )
        row, count = f.load(I64, run, aligned=8), f.load(I64, f.at(run, 1, I64), aligned=8)
        table = f.at(self._tables, row * self._table_stride, I64)
        first_length, length = self._length(row), self._length(row + count - 1)
        seen = first_length - f.choose(first_length < self._window, first_length, self._window, I64)
        begins, ends = part * self._part_tokens, (part + 1) * self._part_tokens
        start, end = f.choose(begins < seen, seen, begins, I64), f.choose(ends < length, ends, length, I64)
        num_queries = count * self._shared
        with f.loop(0, num_queries) as i:
            self._begin(i, row + i // self._shared, kv_head * self._shared + i % self._shared, part, ends)
        with f.loop(0, LANES) as i:
            self._note_place(table, start + i, end, kv_head, i)
        with f.loop(start, end, LANES) as token:
            self._bring_near(table, token, end, kv_head)
            self._add_tokens(token, num_queries)
        with f.loop(0, num_queries) as i:
            with f.when(self._parts.equals(1)):
                self._finish(i)
            with f.when(self._parts.differs(1)):
                self._keep_statistics(i)

    def _length(self, row: Value) -> Value:
        f = self._f
        return f.load(I64, f.at(self._lens, row, I64), aligned=8)

    def _begin(self, query: Value, row: Value, head: Value, part: Value, ends: Value) -> None:
        """Where it is, where its result goes, and nothing of that; the first part has the sink."""
        f = self._f
        length = self._length(row)
        place = (part * self._num_rows + row) * self._num_heads + head
        start = row * self._query_stride + head * self._head_dim
        end = f.choose(ends < length, ends, length, I64)
        for kept, number in ((self._starts, start), (self._ends, end), (self._heads, place)):
            f.store(number, f.at(kept, query, I64), aligned=8)
        largest, total = first_score(f, self._sinks, head, part.equals(0))
        f.store(largest, f.at(self._largest, query, FLOAT), aligned=4)
        f.store(total, f.at(self._total, query, FLOAT), aligned=4)
        output = self._output_of(query)
        with f.loop(0, self._head_dim, LANES) as k:
            f.store(f.constant(FLOATS, 0.0), f.at(output, k, FLOAT), aligned=4)

    def _query(self, query: Value) -> Value:
        f = self._f
        return f.at(self._queries, f.load(I64, f.at(self._starts, query, I64), aligned=8), FLOAT)

    def _output_of(self, query: Value) -> Value:
        f = self._f
        return f.at(self._output, f.load(I64, f.at(self._heads, query, I64), aligned=8) * self._head_dim, FLOAT)

    def _add_tokens(self, token: Value, num_queries: Value) -> None:
        """16 of them to all queries that see any: later ones see no fewer."""
        f = self._f
        query = f.variable(I64, 0)
        with f.forever() as done:
            i = query.value
            f.leave(done, i >= num_queries)
            count = f.load(I64, f.at(self._ends, i, I64), aligned=8) - token
            are_many = (i + (TOGETHER - 1)) < num_queries
            sees_all = count >= LANES
            step = f.variable(I64, 1)
            with f.when(are_many & sees_all):
                self._add(i, TOGETHER, None)
                step.value = TOGETHER
            with f.when(f.choose(are_many, 0, sees_all, I1)):
                self._add(i, 1, None)
            with f.when(f.choose(sees_all, 0, count >= 1, I1)):
                self._add(i, 1, count)
            query.value = i + step.value

    def _bring_near(self, table: Value, token: Value, end: Value, kv_head: Value) -> None:
        """Keys and values of 16 tokens, `[16, head_dim]`; those of the next 16 are fetched meanwhile."""
        f = self._f
        with f.loop(0, LANES) as i:
            now = f.load(I64, f.at(self._places, i, I64), aligned=8)
            scales = self._scales(i)
            soon = self._note_place(table, token + i + LANES, end, kv_head, i)
            with f.loop(0, self._head_dim, LANES) as k:
                to = i * self._head_dim + k
                sides = ((self._keys, self._near_keys), (self._values, self._near_values))
                for (cache, near), scale in zip(sides, scales, strict=True):
                    f.fetch_soon(f.at(cache, soon + k, self._size))
                    f.store(self._cached(cache, now + k, scale), f.at(near, to, FLOAT), aligned=4)

    def _note_place(self, table: Value, position: Value, end: Value, kv_head: Value, lane: Value) -> Value:
        """Where the key and the value of a token begin in the cache, or of the last one, noted with its scales."""
        f = self._f
        position = f.choose(position < end, position, end - 1, I64)
        block = f.load(I64, f.at(table, position // self._block_size, I64), aligned=8)
        offset = position % self._block_size
        if self._element in BYTE_ELEMENTS:
            place, scale = self._pages.place(block, offset, kv_head)
            f.store(scale, f.at(self._scale_places, lane, I64), aligned=8)
        else:
            place = ((block * self._block_size + offset) * self._num_kv_heads + kv_head) * self._head_dim
        f.store(place, f.at(self._places, lane, I64), aligned=8)
        return place

    def _scales(self, lane: Value) -> tuple[Value | None, Value | None]:
        """Of the key and the value whose place was noted, in all lanes; None where they have none."""
        if self._element not in BYTE_ELEMENTS:
            return None, None
        f = self._f
        at = f.load(I64, f.at(self._scale_places, lane, I64), aligned=8)
        key, value = (f.splat(load_scale(f, f.at(cache, at, I8)), LANES) for cache in (self._keys, self._values))
        return key, value

    def _add(self, first: Value, num_queries: int, count: Value | None) -> None:
        """The values of 16 tokens to some queries, by how large their scores are beside the largest so far; of one
        query maybe of fewer tokens."""
        f = self._f
        queries = [first + i for i in range(num_queries)]
        starts = [self._query(query) for query in queries]
        scores = self._scores_of_one(starts[0]) if num_queries == 1 else self._scores_of_four(starts)
        shrinks = [
            self._weigh(i, query, its_scores, count)
            for i, (query, its_scores) in enumerate(zip(queries, scores, strict=True))
        ]
        outputs = [self._output_of(query) for query in queries]
        wide = self._head_dim - self._head_dim % (_VALUES * LANES)
        with f.loop(0, wide, _VALUES * LANES) as k:
            self._add_values(outputs, shrinks, k, _VALUES, count)
        with f.loop(wide, self._head_dim, LANES) as k:
            self._add_values(outputs, shrinks, k, 1, count)

    def _scores_of_one(self, query: Value) -> list[Value]:
        """A query times each of 16 keys."""
        f = self._f
        products = [f.variable(FLOATS, 0.0) for _ in range(LANES)]
        with f.loop(0, self._head_dim, LANES) as k:
            numbers = f.load(FLOATS, f.at(query, k, FLOAT), aligned=4)
            for i, product in enumerate(products):
                key = f.load(FLOATS, f.at(self._near_keys, self._head_dim * i + k, FLOAT), aligned=4)
                product.value = f.fma(numbers, key, product.value)
        return [gathered(f, [product.value for product in products])]

    def _scores_of_four(self, queries: list[Value]) -> list[Value]:
        """The same of four queries, four keys at a time."""
        f = self._f
        fours = [self._four_by_four(queries, first) for first in range(0, LANES, TOGETHER)]
        halves = [
            [
                f.lanes(fours[i], [4 * query + lane for query in pair for lane in range(4)], fours[i + 1])
                for i in (0, 2)
            ]
            for pair in ((0, 4), (1, 5), (2, 6), (3, 7))
        ]
        return [f.lanes(low, range(LANES), high) for low, high in halves]

    def _four_by_four(self, queries: list[Value], first: int) -> Value:
        """Lane `4 * query + key`, of four keys."""
        f = self._f
        products = [f.variable(FLOATS, 0.0) for _ in range(LANES)]
        with f.loop(0, self._head_dim, LANES) as k:
            numbers = [f.load(FLOATS, f.at(query, k, FLOAT), aligned=4) for query in queries]
            for i in range(TOGETHER):
                key = f.load(FLOATS, f.at(self._near_keys, self._head_dim * (first + i) + k, FLOAT), aligned=4)
                for j, each in enumerate(numbers):
                    product = products[TOGETHER * j + i]
                    product.value = f.fma(each, key, product.value)
        return gathered(f, [product.value for product in products])

    def _weigh(self, i: int, query: Value, scores: Value, count: Value | None) -> Value:
        """Scores into weights, in their place; -> by what all before shrinks."""
        f = self._f
        largest_at, total_at = f.at(self._largest, query, FLOAT), f.at(self._total, query, FLOAT)
        mask = None if count is None else f.first_lanes(count, LANES)
        scores = scores if mask is None else f.choose(mask, scores, _LOWEST, FLOATS)
        before = f.load(FLOAT, largest_at, aligned=4)
        largest = f.largest(before, f.folded(scores, LANES, "largest"))
        shrink = exponential(f, f.splat(before - largest, LANES))
        weights = exponential(f, scores - f.splat(largest, LANES))
        weights = weights if mask is None else f.choose(mask, weights, 0.0, FLOATS)
        f.store(weights, f.at(self._weights, LANES * i, FLOAT), aligned=64)
        f.store(largest, largest_at, aligned=4)
        total = f.load(FLOAT, total_at, aligned=4) * f.lane(shrink, 0) + f.folded(weights, LANES)
        f.store(total, total_at, aligned=4)
        return shrink

    def _add_values(
        self, outputs: list[Value], shrinks: list[Value], k: Value, width: int, count: Value | None
    ) -> None:
        """To so many times 16 elements of the results."""
        f = self._f
        places = [[f.at(output, k + LANES * j, FLOAT) for j in range(width)] for output in outputs]
        sums = [
            [f.variable(FLOATS, f.load(FLOATS, place, aligned=4) * shrink) for place in its_places]
            for its_places, shrink in zip(places, shrinks, strict=True)
        ]
        if count is None:
            for i in range(LANES):
                self._add_value(f.constant(I64, i), k, sums)
        else:
            with f.loop(0, count) as token:
                self._add_value(token, k, sums)
        for its_places, its_sums in zip(places, sums, strict=True):
            for place, each in zip(its_places, its_sums, strict=True):
                f.store(each.value, place, aligned=4)

    def _add_value(self, token: Value, k: Value, sums: list[list[Variable]]) -> None:
        f = self._f
        start = f.at(self._near_values, self._head_dim * token + k, FLOAT)
        values = [f.load(FLOATS, f.at(start, LANES * j, FLOAT), aligned=4) for j in range(len(sums[0]))]
        for i, its_sums in enumerate(sums):
            weight = f.splat(f.load(FLOAT, f.at(self._weights, token + LANES * i, FLOAT), aligned=4), LANES)
            for value, each in zip(values, its_sums, strict=True):
                each.value = f.fma(weight, value, each.value)

    def _keep_statistics(self, query: Value) -> None:
        f = self._f
        place = f.load(I64, f.at(self._heads, query, I64), aligned=8)
        totals = self._parts * self._num_rows * self._num_heads
        for kept, offset in ((self._largest, f.constant(I64, 0)), (self._total, totals)):
            number = f.load(FLOAT, f.at(kept, query, FLOAT), aligned=4)
            f.store(number, f.at(self._statistics, place + offset, FLOAT), aligned=4)

    def _finish(self, query: Value) -> None:
        f = self._f
        output = self._output_of(query)
        total = f.splat(f.load(FLOAT, f.at(self._total, query, FLOAT), aligned=4), LANES)
        with f.loop(0, self._head_dim, LANES) as k:
            at = f.at(output, k, FLOAT)
            f.store(f.load(FLOATS, at, aligned=4) / total, at, aligned=4)

    @property
    def _size(self) -> str:
        return FLOAT if self._element == "f32" else I16 if self._element == "bf16" else I8

    def _cached(self, cache: Value, place: Value, scale: Value | None) -> Value:
        f = self._f
        if scale is not None:
            return floats_of(f, self._element, f.load(BYTES, f.at(cache, place, I8))) * scale
        if self._element == "f32":
            return f.load(FLOATS, f.at(cache, place, FLOAT), aligned=4)
        halves = f.load(vector(LANES, I16), f.at(cache, place, I16), aligned=2)
        return f.convert("bitcast", f.convert("zext", halves, INTS) << 16, FLOATS)

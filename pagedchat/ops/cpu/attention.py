"""The kernel of attention of single tokens over a paged cache by token, `[num_slots, num_kv_heads, head_dim]`, of
floats or of bytes with scales (`ops.cache.byte_cache`), with an online softmax (Milakov and Gimelshein 2018, arXiv
1805.02867): 16 tokens at a time, in the order of the sequence.

A unit is a part of the tokens for a KV head of a row, with all query heads that share it, so keys and values
are read once: 16 tokens' are copied side by side, in float32. Of the last tokens there may be fewer; then the
last one is there several times, and counts once. Where rows have one part the output is the result. Where they
have more it holds each part's sum of values, not yet divided, and `merge_attention` brings them together: parts
begin at the same tokens of every sequence, and one that a row does not have adds zeros, so that a row's numbers
do not depend on others.

Arguments of `merge_attention`: the output of parts, what was largest and the sums of the weights, result
(float32 [num_rows, num_heads, head_dim]), parts, num_rows times num_heads, head_dim. A unit is a head of a row.

Arguments of `attention`: queries (float32, already scaled), output (float32 [num_rows, num_heads, head_dim]),
key cache, value cache, block tables (int64), tokens of each sequence (int64), num_heads, num_kv_heads,
head_dim, block_size, ids in a row of the block tables, elements from a row's queries to the next one's, tokens
that a token sees, parts, tokens of a part, num_rows, what was largest and the sums of the weights of parts
(float32 [2, parts, num_rows, num_heads], written where there are several; the output is then [parts, num_rows,
num_heads, head_dim]), and for a cache of bytes those of a page and where its scales begin.
"""

from pagedchat.jit.cpu.ir import FLOAT, I8, I16, I64, PTR, Function, Module, Value, vector
from pagedchat.ops.cpu.byte_elements import BYTE_ELEMENTS, BYTES, BytePages, floats_of, load_scale
from pagedchat.ops.cpu.dense_product import argument
from pagedchat.ops.cpu.heads import CACHE_ELEMENTS
from pagedchat.ops.cpu.vectors import FLOATS, INTS, LANES, exponential, gathered

MOST_QUERIES = 64
"""Query heads that may share a KV head."""

WIDEST_HEAD = 256
"""Elements of a head, at most."""

_LOWEST = -3.0e38


def write_attention(module: Module) -> None:
    """`attention_f32`, `attention_bf16`, `attention_int8`, `attention_fp8` and `merge_attention`."""
    for element in CACHE_ELEMENTS:
        f = module.function(f"attention_{element}", [("args", PTR), ("first", I64), ("last", I64)])
        attention = _Attention(f, element)
        with f.loop(f.parameter("first"), f.parameter("last")) as unit:
            attention.write(unit)
        f.finish()
    _write_merge(module)


def _write_merge(module: Module) -> None:
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
        self._statistics = argument(f, args, 16, PTR)
        if element in BYTE_ELEMENTS:
            sizes = (self._block_size, self._num_kv_heads, self._head_dim)
            self._pages = BytePages(*sizes, argument(f, args, 17), argument(f, args, 18))
            self._scale_places = self._stack(LANES, I64)
        self._shared = self._num_heads // self._num_kv_heads
        self._largest, self._total = (self._stack(MOST_QUERIES, FLOAT) for _ in range(2))
        self._weights, self._places = self._stack(LANES, FLOAT), self._stack(LANES, I64)
        self._near_keys, self._near_values = (self._stack(LANES * WIDEST_HEAD, FLOAT) for _ in range(2))

    def _stack(self, count: int, kind: str) -> Value:
        return Value(self._f, PTR, self._f.variable(vector(count, kind)).name)

    def write(self, unit: Value) -> None:
        f = self._f
        part, head_of_row = unit % self._parts, unit // self._parts
        row, kv_head = head_of_row // self._num_kv_heads, head_of_row % self._num_kv_heads
        first_head = kv_head * self._shared
        place = (part * self._num_rows + row) * self._num_heads + first_head
        queries = f.at(self._queries, row * self._query_stride + first_head * self._head_dim, FLOAT)
        output = f.at(self._output, place * self._head_dim, FLOAT)
        table = f.at(self._tables, row * self._table_stride, I64)
        length = f.load(I64, f.at(self._lens, row, I64), aligned=8)
        seen = length - f.choose(length < self._window, length, self._window, I64)
        begins, ends = part * self._part_tokens, (part + 1) * self._part_tokens
        start, end = f.choose(begins < seen, seen, begins, I64), f.choose(ends < length, ends, length, I64)
        self._begin(output)
        with f.loop(0, LANES) as i:
            self._note_place(table, start + i, end, kv_head, i)
        with f.loop(start, end, LANES) as token:
            count = end - token
            count = f.choose(count < LANES, count, LANES, I64)
            self._bring_near(table, token, end, kv_head)
            with f.loop(0, self._shared) as head:
                offset = head * self._head_dim
                self._add(f.at(output, offset, FLOAT), head, self._scores(f.at(queries, offset, FLOAT)), count)
        with f.when(self._parts.equals(1)):
            self._finish(output)
        with f.when(self._parts.differs(1)):
            self._keep_statistics(place)

    def _begin(self, output: Value) -> None:
        f = self._f
        with f.loop(0, self._shared) as head:
            f.store(f.constant(FLOAT, _LOWEST), f.at(self._largest, head, FLOAT), aligned=4)
            f.store(f.constant(FLOAT, 0.0), f.at(self._total, head, FLOAT), aligned=4)
        with f.loop(0, self._shared * self._head_dim, LANES) as k:
            f.store(f.constant(FLOATS, 0.0), f.at(output, k, FLOAT), aligned=4)

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

    def _scores(self, query: Value) -> Value:
        """A query times each of 16 keys."""
        f = self._f
        products = [f.variable(FLOATS, 0.0) for _ in range(LANES)]
        with f.loop(0, self._head_dim, LANES) as k:
            numbers = f.load(FLOATS, f.at(query, k, FLOAT), aligned=4)
            for i, product in enumerate(products):
                key = f.load(FLOATS, f.at(self._near_keys, self._head_dim * i + k, FLOAT), aligned=4)
                product.value = f.fma(numbers, key, product.value)
        return gathered(f, [product.value for product in products])

    def _add(self, output: Value, head: Value, scores: Value, count: Value) -> None:
        """The values, by how large their scores are beside the largest so far."""
        f = self._f
        largest_at, total_at = f.at(self._largest, head, FLOAT), f.at(self._total, head, FLOAT)
        mask = f.first_lanes(count, LANES)
        scores = f.choose(mask, scores, _LOWEST, FLOATS)
        before = f.load(FLOAT, largest_at, aligned=4)
        largest = f.largest(before, f.folded(scores, LANES, "largest"))
        shrink = exponential(f, f.splat(before - largest, LANES))
        weights = f.choose(mask, exponential(f, scores - f.splat(largest, LANES)), 0.0, FLOATS)
        f.store(weights, self._weights, aligned=4)
        f.store(largest, largest_at, aligned=4)
        total = f.load(FLOAT, total_at, aligned=4) * f.lane(shrink, 0) + f.folded(weights, LANES)
        f.store(total, total_at, aligned=4)
        with f.loop(0, self._head_dim, LANES) as k:
            at = f.at(output, k, FLOAT)
            result = f.load(FLOATS, at, aligned=4) * shrink
            for i in range(LANES):
                weight = f.splat(f.load(FLOAT, f.at(self._weights, i, FLOAT), aligned=4), LANES)
                value = f.load(FLOATS, f.at(self._near_values, self._head_dim * i + k, FLOAT), aligned=4)
                result = f.fma(weight, value, result)
            f.store(result, at, aligned=4)

    def _keep_statistics(self, place: Value) -> None:
        f = self._f
        totals = self._parts * self._num_rows * self._num_heads
        with f.loop(0, self._shared) as head:
            for kept, offset in ((self._largest, f.constant(I64, 0)), (self._total, totals)):
                number = f.load(FLOAT, f.at(kept, head, FLOAT), aligned=4)
                f.store(number, f.at(self._statistics, place + head + offset, FLOAT), aligned=4)

    def _finish(self, output: Value) -> None:
        f = self._f
        with f.loop(0, self._shared) as head:
            total = f.splat(f.load(FLOAT, f.at(self._total, head, FLOAT), aligned=4), LANES)
            with f.loop(0, self._head_dim, LANES) as k:
                at = f.at(output, head * self._head_dim + k, FLOAT)
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

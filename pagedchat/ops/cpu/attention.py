"""The kernel of attention of single tokens over a paged cache by token, `[num_slots, num_kv_heads, head_dim]`, of
floats or of bytes with scales (`ops.cache.byte_cache`), with an online softmax (Milakov and Gimelshein 2018, arXiv
1805.02867): 16 tokens at a time, in the order of the sequence.

A unit is a KV head of a row, with all query heads that share it, so keys and values are read once: 16 tokens' are
copied side by side, in float32. Of the last tokens there may be fewer; then the last one is there several times,
and counts once.

Arguments: queries (float32, already scaled), output (float32 [num_rows, num_heads, head_dim]), key cache, value
cache, block tables (int64), tokens of each sequence (int64), num_heads, num_kv_heads, head_dim, block_size, ids in
a row of the block tables, elements from a row's queries to the next one's, tokens that a token sees, and for a
cache of bytes those of a page and where its scales begin.
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
    """`attention_f32`, `attention_bf16`, `attention_int8` and `attention_fp8`."""
    for element in CACHE_ELEMENTS:
        f = module.function(f"attention_{element}", [("args", PTR), ("first", I64), ("last", I64)])
        attention = _Attention(f, element)
        with f.loop(f.parameter("first"), f.parameter("last")) as unit:
            attention.write(unit)
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
        if element in BYTE_ELEMENTS:
            sizes = (self._block_size, self._num_kv_heads, self._head_dim)
            self._pages = BytePages(*sizes, argument(f, args, 13), argument(f, args, 14))
            self._scale_places = self._stack(LANES, I64)
        self._shared = self._num_heads // self._num_kv_heads
        self._largest, self._total = (self._stack(MOST_QUERIES, FLOAT) for _ in range(2))
        self._weights, self._places = self._stack(LANES, FLOAT), self._stack(LANES, I64)
        self._near_keys, self._near_values = (self._stack(LANES * WIDEST_HEAD, FLOAT) for _ in range(2))

    def _stack(self, count: int, kind: str) -> Value:
        return Value(self._f, PTR, self._f.variable(vector(count, kind)).name)

    def write(self, unit: Value) -> None:
        f = self._f
        row, kv_head = unit // self._num_kv_heads, unit % self._num_kv_heads
        first_head = kv_head * self._shared
        queries = f.at(self._queries, row * self._query_stride + first_head * self._head_dim, FLOAT)
        output = f.at(self._output, (row * self._num_heads + first_head) * self._head_dim, FLOAT)
        table = f.at(self._tables, row * self._table_stride, I64)
        end = f.load(I64, f.at(self._lens, row, I64), aligned=8)
        start = end - f.choose(end < self._window, end, self._window, I64)
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
        self._finish(output)

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

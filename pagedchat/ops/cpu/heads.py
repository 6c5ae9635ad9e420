"""The kernel between the product of queries, keys and values and attention: norms heads, turns them by their
angles, scales queries where they are and writes keys and values into the cache, which is by token: `[num_slots,
num_kv_heads, head_dim]`, float32, bfloat16 or bytes with scales (`ops.cache.byte_cache`).

Arguments: rows (float32 [num_rows, heads of all three, head_dim]), key cache, value cache, slots (int64
[num_rows]), turns or 0 (float32 [num_rows, 2, pairs]: cosines, sines), num_heads, num_kv_heads, head_dim, pairs,
weights of the norms of queries and of keys or 0 (float32 [head_dim]), their eps, the factor of the scores (float32
bits), and for a cache of bytes block_size, bytes of a page, where its scales begin. A unit is a head of a row.
"""

from pagedchat.jit.cpu.ir import FLOAT, I8, I16, I64, PTR, Function, Module, Value, vector
from pagedchat.ops.cpu.byte_elements import BYTE_ELEMENTS, BytePages, keep_bytes
from pagedchat.ops.cpu.dense_elements import argument
from pagedchat.ops.cpu.vectors import FLOATS, INTS, LANES

WHOLE_ELEMENTS = ("f32", "bf16")
CACHE_ELEMENTS = (*WHOLE_ELEMENTS, *BYTE_ELEMENTS)


def write_heads(module: Module) -> None:
    """`heads_f32`, `heads_bf16`, `heads_int8` and `heads_fp8`."""
    for element in CACHE_ELEMENTS:
        _write(module, element)


def _write(module: Module, element: str) -> None:
    f = module.function(f"heads_{element}", [("args", PTR), ("first", I64), ("last", I64)])
    args = f.parameter("args")
    rows, slots, turns = argument(f, args, 0, PTR), argument(f, args, 3, PTR), argument(f, args, 4)
    num_heads, num_kv_heads, head_dim, pairs = (argument(f, args, i) for i in (5, 6, 7, 8))
    eps, scale = argument(f, args, 11, FLOAT), argument(f, args, 12, FLOAT)
    both = num_heads + num_kv_heads
    with f.loop(f.parameter("first"), f.parameter("last")) as unit:
        row, head = unit // (both + num_kv_heads), unit % (both + num_kv_heads)
        place = f.at(rows, unit * head_dim, FLOAT)
        is_query = head < num_heads
        with f.when(head < both):
            weight = f.choose(is_query, argument(f, args, 9), argument(f, args, 10), I64)
            with f.when(weight.differs(0)):
                _norm(f, place, head_dim, f.convert("inttoptr", weight, PTR), eps)
            with f.when(turns.differs(0)):
                _turn(f, place, pairs, f.at(f.convert("inttoptr", turns, PTR), row * pairs * 2, FLOAT))
        with f.when(is_query), f.loop(0, head_dim, LANES) as k:
            at = f.at(place, k, FLOAT)
            f.store(f.load(FLOATS, at, aligned=4) * f.splat(scale, LANES), at, aligned=4)
        with f.when(head >= num_heads):
            is_key = head < both
            cache = f.choose(is_key, argument(f, args, 1), argument(f, args, 2), I64)
            kv_head = head - f.choose(is_key, num_heads, both, I64)
            slot = f.load(I64, f.at(slots, row, I64), aligned=8)
            cache = f.convert("inttoptr", cache, PTR)
            if element in BYTE_ELEMENTS:
                block_size, page, scales = (argument(f, args, i) for i in (13, 14, 15))
                pages = BytePages(block_size, num_kv_heads, head_dim, page, scales)
                at, scale_at = pages.of_slot(slot, kv_head)
                keep_bytes(f, element, place, f.at(cache, at, I8), f.at(cache, scale_at, I8), head_dim)
            else:
                _keep(f, element, place, cache, (slot * num_kv_heads + kv_head) * head_dim, head_dim)
    f.finish()


def _norm(f: Function, place: Value, width: Value, weight: Value, eps: Value) -> None:
    """By the root mean square."""
    squares = f.variable(FLOATS, 0.0)
    with f.loop(0, width, LANES) as k:
        each = f.load(FLOATS, f.at(place, k, FLOAT), aligned=4)
        squares.value = f.fma(each, each, squares.value)
    mean = f.folded(squares.value, LANES) / f.convert("sitofp", width, FLOAT) + eps
    inverse = f.splat(f.constant(FLOAT, 1.0) / f.unary("sqrt", mean), LANES)
    with f.loop(0, width, LANES) as k:
        at = f.at(place, k, FLOAT)
        normed = f.load(FLOATS, at, aligned=4) * inverse
        f.store(normed * f.load(FLOATS, f.at(weight, k, FLOAT), aligned=4), at, aligned=4)


def _turn(f: Function, place: Value, pairs: Value, turns: Value) -> None:
    with f.loop(0, pairs, LANES) as k:
        mask = f.first_lanes(pairs - k, LANES)
        cos, sin = (f.load_some(FLOATS, f.at(turns, at, FLOAT), mask) for at in (k, pairs + k))
        first_at, second_at = f.at(place, k, FLOAT), f.at(place, pairs + k, FLOAT)
        first, second = f.load_some(FLOATS, first_at, mask), f.load_some(FLOATS, second_at, mask)
        f.store_some(first * cos - second * sin, first_at, mask)
        f.store_some(second * cos + first * sin, second_at, mask)


def _keep(f: Function, element: str, place: Value, cache: Value, at: Value, head_dim: Value) -> None:
    with f.loop(0, head_dim, LANES) as k:
        each = f.load(FLOATS, f.at(place, k, FLOAT), aligned=4)
        if element == "f32":
            f.store(each, f.at(cache, at + k, FLOAT), aligned=4)
        else:
            f.store(_rounded(f, each), f.at(cache, at + k, I16), aligned=2)


def _rounded(f: Function, numbers: Value) -> Value:
    """To the nearest bfloat16, to the even one of two, as 16 bits."""
    bits = f.convert("bitcast", numbers, INTS)
    nearest = bits + (((bits >> 16) & 1) + 0x7FFF)
    return f.convert("trunc", nearest >> 16, vector(LANES, I16))

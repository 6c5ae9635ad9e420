"""Elements of one byte, 16 at a time: whole numbers and floats of 8 bits (e4m3), to floats and back, and the scales
that they have. The same bits as those of `ops.cache.byte_cache`. Knows no cache.
"""

from dataclasses import dataclass

from pagedchat.jit.cpu.ir import FLOAT, I8, I16, I32, Function, Value, vector
from pagedchat.ops.cache.byte_kinds import LARGEST_OF, LEAST_SCALE
from pagedchat.ops.cpu.vectors import FLOATS, INTS, LANES

BYTES = vector(LANES, I8)
BYTE_ELEMENTS = {str(kind): largest for kind, largest in LARGEST_OF.items()}
"""With the largest number that each has."""

_BIAS = 120
"""What the exponent of a float32 is ahead of that of an e4m3."""
_MANTISSA = 20
"""Bits that a float32 has more of it."""
_LEAST_NORMAL, _STEP = 2.0**-6, 2.0**-9
"""Of e4m3: the least number with an exponent of its own, and how far those below it are apart."""


def floats_of(f: Function, element: str, numbers: Value) -> Value:
    """`<16 x i8>` -> `<16 x float>`."""
    if element == "int8":
        return f.convert("sitofp", f.convert("sext", numbers, INTS), FLOATS)
    bits = f.convert("zext", numbers, INTS)
    size = bits & 0x7F
    normal = f.convert("bitcast", (size << _MANTISSA) + (_BIAS << 23), FLOATS)
    small = f.convert("sitofp", size, FLOATS) * _STEP
    found = f.choose(size < 8, small, normal, FLOATS)
    return f.convert("bitcast", f.convert("bitcast", found, INTS) | ((bits & 0x80) << 24), FLOATS)


def bytes_of(f: Function, element: str, numbers: Value) -> Value:
    """`<16 x float>`, none beyond the largest, -> `<16 x i8>`, each to the nearest, to the even one of two."""
    if element == "int8":
        return f.convert("trunc", _whole(f, numbers), BYTES)
    bits = f.convert("bitcast", numbers, INTS)
    size = bits & 0x7FFFFFFF
    nearest = size + (((size >> _MANTISSA) & 1) + ((1 << (_MANTISSA - 1)) - 1))
    normal = (nearest >> _MANTISSA) - (_BIAS << 3)
    magnitude = f.convert("bitcast", size, FLOATS)
    found = f.choose(magnitude < _LEAST_NORMAL, _whole(f, magnitude * (1 / _STEP)), normal, INTS)
    return f.convert("trunc", found | ((bits >> 24) & 0x80), BYTES)


def _whole(f: Function, numbers: Value) -> Value:
    return f.call(INTS, "llvm.fptosi.sat.v16i32.v16f32", [f.unary("rint", numbers)])


def load_scale(f: Function, address: Value) -> Value:
    """A scale, bfloat16, as a float."""
    bits = f.convert("zext", f.load(I16, address, aligned=2), I32)
    return f.convert("bitcast", bits << 16, FLOAT)


def keep_bytes(f: Function, element: str, place: Value, head: Value, scale_at: Value, head_dim: Value) -> None:
    """Bring a head into bytes.

    Args:
        f: where the instructions go.
        element: of `BYTE_ELEMENTS`.
        place: address of the head, float32 `[head_dim]`.
        head: address of its bytes.
        scale_at: address of its scale.
        head_dim: a multiple of 16.
    """
    largest = f.variable(FLOATS, 0.0)
    with f.loop(0, head_dim, LANES) as k:
        each = f.load(FLOATS, f.at(place, k, FLOAT), aligned=4)
        largest.value = f.largest(largest.value, f.unary("fabs", each))
    exact = f.folded(largest.value, LANES, "largest") / BYTE_ELEMENTS[element]
    bits = (f.convert("bitcast", f.largest(exact, f.constant(FLOAT, LEAST_SCALE)), I32) + 0xFFFF) >> 16
    f.store(f.convert("trunc", bits, I16), scale_at, aligned=2)
    scale = f.convert("bitcast", bits << 16, FLOAT)
    inverse = f.splat(f.constant(FLOAT, 1.0) / scale, LANES)
    with f.loop(0, head_dim, LANES) as k:
        each = f.load(FLOATS, f.at(place, k, FLOAT), aligned=4)
        f.store(bytes_of(f, element, each * inverse), f.at(head, k, I8))


@dataclass(frozen=True, slots=True)
class BytePages:
    """Where heads of tokens lie in a cache by token, in pages with their scales behind the elements."""

    block_size: Value
    num_kv_heads: Value
    head_dim: Value
    page_bytes: Value
    """From one block to the next."""
    scales_start: Value
    """Of a page, in bytes."""

    def place(self, block: Value, offset: Value, kv_head: Value) -> tuple[Value, Value]:
        """Of a head of a token: its first byte, and its scale, both in bytes from the cache's beginning."""
        page, row = block * self.page_bytes, offset * self.num_kv_heads + kv_head
        return page + row * self.head_dim, page + self.scales_start + row * 2

    def of_slot(self, slot: Value, kv_head: Value) -> tuple[Value, Value]:
        """The same by slot."""
        return self.place(slot // self.block_size, slot % self.block_size, kv_head)

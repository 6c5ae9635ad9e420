"""Sums of four products of bytes, 16 lanes at a time: by one instruction where the processor has it, and by exact
detours where not. The sums are whole numbers, so all ways give the same bits.
"""

from collections.abc import Callable

from pagedchat.jit.cpu.ir import I16, I32, Function, Value, vector
from pagedchat.jit.cpu.target import CpuTarget

_LANES = 16
_BYTES, _INTS = vector(64, "i8"), vector(_LANES, I32)


_Dot = Callable[[Function, Value, Value, Value], Value]
"""Total, weights and inputs in vectors as wide as the registers -> the new total."""


def digits_are_signed(target: CpuTarget) -> bool:
    """Whether weights of 8 bits are -128 to 127 in memory; else they are 128 more, 0 to 255."""
    return target.dot in ("sdot", "plain")


def add_dots(f: Function, target: CpuTarget, total: Value, weights: Value, inputs: Value) -> Value:
    """`total` plus, in each lane, four weights times four inputs.

    Args:
        f: where the instructions go.
        target: chooses them.
        total: `<16 x i32>`.
        weights: `<16 x i32>`, four bytes in each, unsigned or signed as `digits_are_signed` says.
        inputs: i32, four signed bytes, the same for all lanes.
    """
    if target.dot == "vnni512":
        return _vnni(f, total, weights, f.splat(inputs, _LANES), 512)
    if target.dot == "sdot":
        return _in_parts(f, total, weights, f.splat(inputs, 4), 4, _sdot)
    if target.dot == "vnni":
        return _in_parts(f, total, weights, f.splat(inputs, 8), 8, lambda f, t, w, x: _vnni(f, t, w, x, 256))
    if target.dot == "pairs":
        return _in_parts(f, total, weights, f.splat(inputs, 8), 8, _pairs)
    return _plain(f, total, weights, f.splat(inputs, _LANES))


def _vnni(f: Function, total: Value, weights: Value, inputs: Value, bits: int) -> Value:
    kind = vector(bits // 8, "i8")
    weight_bytes, input_bytes = f.convert("bitcast", weights, kind), f.convert("bitcast", inputs, kind)
    return f.call(total.kind, f"llvm.x86.avx512.vpdpbusd.{bits}", [total, weight_bytes, input_bytes])


def _sdot(f: Function, total: Value, weights: Value, inputs: Value) -> Value:
    kind = vector(16, "i8")
    weight_bytes, input_bytes = f.convert("bitcast", weights, kind), f.convert("bitcast", inputs, kind)
    return f.call(total.kind, "llvm.aarch64.neon.sdot.v4i32.v16i8", [total, weight_bytes, input_bytes])


def _pairs(f: Function, total: Value, weights: Value, inputs: Value) -> Value:
    """AVX2: unsigned weights and signed inputs as shorts, whose products in pairs fit an int.

    An instruction for bytes would saturate. The shorts are the even bytes, then the odd ones.
    """
    kind, name = vector(16, I16), "llvm.x86.avx2.pmadd.wd"
    weight_shorts, input_shorts = f.convert("bitcast", weights, kind), f.convert("bitcast", inputs, kind)
    even = f.call(total.kind, name, [weight_shorts & 255, f.binary("ashr", input_shorts << 8, 8)])
    odd = f.call(total.kind, name, [weight_shorts >> 8, f.binary("ashr", input_shorts, 8)])
    return total + even + odd


def _plain(f: Function, total: Value, weights: Value, inputs: Value) -> Value:
    """Both signed, by shifts."""
    for place in (24, 16, 8, 0):
        weight, number = (f.binary("ashr", each << place, 24) for each in (weights, inputs))
        total = total + weight * number
    return total


def _in_parts(f: Function, total: Value, weights: Value, inputs: Value, lanes: int, dot: _Dot) -> Value:
    """In vectors as wide as the registers."""
    parts = []
    for start in range(0, _LANES, lanes):
        wanted = range(start, start + lanes)
        parts.append(dot(f, f.lanes(total, wanted), f.lanes(weights, wanted), inputs))
    while len(parts) > 1:
        width = _LANES // len(parts)
        parts = [f.lanes(low, range(2 * width), high) for low, high in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]

"""Sums of four products of bytes, 16 lanes at a time: by one instruction where the processor has it, and by exact
detours where not. The sums are whole numbers, so all ways give the same bits.
"""

from collections.abc import Callable
from typing import NamedTuple

from pagedchat.jit.cpu.ir import I16, I32, Function, Value, vector
from pagedchat.jit.cpu.target import CpuTarget

_LANES = 16
_HALF_BYTES, _SHORTS = vector(32, "i8"), vector(16, I16)
_IN_PAIRS = "llvm.x86.avx2.pmadd.ub.sw"

_Dot = Callable[[Function, Value, Value, Value], Value]
"""Total, weights and inputs in vectors as wide as the registers -> the new total."""


def digits_are_signed(target: CpuTarget) -> bool:
    """Whether weights of 8 bits are -128 to 127 in memory; else they are 128 more, 0 to 255."""
    return target.dot in ("sdot", "plain", "pairs")


def sums_as_shorts(target: CpuTarget) -> bool:
    """Whether `small_dots` sums products with digits of 4 bits faster than `add_dots` does."""
    return target.dot == "pairs"


def small_dots(f: Function, weights: list[Value], inputs: list[Value]) -> Value:
    """The sum of what `add_dots` adds for each of up to 8 weights and inputs, by AVX2: shorts can hold it.

    Args:
        f: where the instructions go.
        weights: `<16 x i32>`, four bytes from 0 to 15 in each.
        inputs: i32, four bytes from -127 to 127, the same for all lanes: of each weight its own.
    """
    halves = []
    for start in (0, 8):
        sums: Value | None = None
        for weight, four in zip(weights, inputs, strict=True):
            part = f.convert("bitcast", f.lanes(weight, range(start, start + 8)), _HALF_BYTES)
            products = f.call(_SHORTS, _IN_PAIRS, [part, _in_all(f, four)])
            sums = products if sums is None else sums + products
        assert sums is not None  # noqa: S101 - there are weights
        halves.append(_summed_in_pairs(f, sums))
    return f.lanes(halves[0], range(_LANES), halves[1])


def pair_dots(f: Function, weights: Value, inputs: Value) -> Value:
    """In each lane four weights times four inputs, by AVX2: it multiplies bytes without a sign by bytes with one,
    and two products at a time fit a short if the former are no more than 128: weights give their signs to inputs.

    Args:
        f: where the instructions go.
        weights, inputs: `<8 x i32>`, four signed bytes in each, the latter from -127 to 127.
    """
    digits, numbers = (f.convert("bitcast", each, _HALF_BYTES) for each in (weights, inputs))
    signed = f.call(_HALF_BYTES, "llvm.x86.avx2.psign.b", [numbers, digits])
    return _summed_in_pairs(f, f.call(_SHORTS, _IN_PAIRS, [f.magnitude(digits), signed]))


class Parted(NamedTuple):
    """Signed bytes of weights, in parts that AVX2 multiplies with fewer steps in its way: `parted_dots`."""

    magnitudes: Value
    """`<8 x i32>`, four bytes in each, 0 to 128."""
    signs: Value
    """`<8 x i32>`: bytes of ones where weights are below 0, else zeros."""


def parted(f: Function, weights: Value) -> Parted:
    """`<8 x i32>`, four signed bytes in each."""
    digits = f.convert("bitcast", weights, _HALF_BYTES)
    signs = f.binary("ashr", digits, 7)
    return Parted(*(f.convert("bitcast", each, weights.kind) for each in (f.magnitude(digits), signs)))


def parted_dots(f: Function, weights: Parted, inputs: Value) -> Value:
    """In each lane what `pair_dots` has, less the magnitudes of all weights below 0, which `below_0` sums: with its
    bits turned over an input x is -x - 1. Nothing is more than a short holds.

    Args:
        f: where the instructions go.
        weights: four in each lane.
        inputs: `<8 x i32>`, four bytes from -127 to 127 in each.
    """
    turned = f.convert("bitcast", f.binary("xor", inputs, weights.signs), _HALF_BYTES)
    magnitudes = f.convert("bitcast", weights.magnitudes, _HALF_BYTES)
    return _summed_in_pairs(f, f.call(_SHORTS, _IN_PAIRS, [magnitudes, turned]))


def below_0(f: Function, weights: Parted) -> Value:
    """In each lane the magnitudes of those of four weights that are below 0, summed."""
    bytes_of_them = f.convert("bitcast", weights.magnitudes & weights.signs, _HALF_BYTES)
    return _summed_in_pairs(f, f.call(_SHORTS, _IN_PAIRS, [bytes_of_them, f.constant(_HALF_BYTES, 1)]))


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
        return _in_parts(f, total, weights, f.splat(inputs, 8), 8, lambda f, t, w, x: t + pair_dots(f, w, x))
    return _plain(f, total, weights, f.splat(inputs, _LANES))


def _vnni(f: Function, total: Value, weights: Value, inputs: Value, bits: int) -> Value:
    kind = vector(bits // 8, "i8")
    weight_bytes, input_bytes = f.convert("bitcast", weights, kind), f.convert("bitcast", inputs, kind)
    return f.call(total.kind, f"llvm.x86.avx512.vpdpbusd.{bits}", [total, weight_bytes, input_bytes])


def _sdot(f: Function, total: Value, weights: Value, inputs: Value) -> Value:
    kind = vector(16, "i8")
    weight_bytes, input_bytes = f.convert("bitcast", weights, kind), f.convert("bitcast", inputs, kind)
    return f.call(total.kind, "llvm.aarch64.neon.sdot.v4i32.v16i8", [total, weight_bytes, input_bytes])


def _in_all(f: Function, four: Value) -> Value:
    return f.convert("bitcast", f.splat(four, 8), _HALF_BYTES)


def _summed_in_pairs(f: Function, shorts: Value) -> Value:
    return f.call(vector(8, I32), "llvm.x86.avx2.pmadd.wd", [shorts, f.constant(_SHORTS, 1)])


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

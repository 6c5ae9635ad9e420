"""Functions of 16 floats at a time that LLVM does not have: the exponential, and activations made of it."""

from collections.abc import Callable
from math import log, pi, sqrt

from pagedchat.jit.cpu.ir import FLOAT, I32, Function, Value, vector

LANES = 16
FLOATS, INTS = vector(LANES, FLOAT), vector(LANES, I32)

_LEAST, _MOST = -87.0, 88.0
"""Arguments that are still normal numbers, and none above."""
_LN2_HIGH = 0.693359375
_LN2_LOW = log(2) - _LN2_HIGH
_TERMS = (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0)
"""Of the series of the exponential, the highest power first; below ln(2) / 2 what is left out is under 2e-7."""


def exponential(f: Function, x: Value) -> Value:
    """e to the power of x; of what is out of range the bound's. Relative error below 4e-7."""
    x = f.largest(x, f.constant(FLOATS, _LEAST))
    x = f.call(FLOATS, "llvm.minnum.v16f32", [x, f.constant(FLOATS, _MOST)])
    power = f.unary("rint", x * (1 / log(2)))
    rest = f.fma(power, f.constant(FLOATS, -_LN2_HIGH), x)
    rest = f.fma(power, f.constant(FLOATS, -_LN2_LOW), rest)
    total = f.constant(FLOATS, _TERMS[0])
    for term in _TERMS[1:]:
        total = f.fma(total, rest, f.constant(FLOATS, term))
    exponent = (f.call(INTS, "llvm.fptosi.sat.v16i32.v16f32", [power]) + 127) << 23
    return total * f.convert("bitcast", exponent, FLOATS)


def _times_sigmoid(f: Function, x: Value, inside: Value) -> Value:
    return x / (exponential(f, inside * -1.0) + 1.0)


def silu(f: Function, x: Value) -> Value:
    """`x * sigmoid(x)`."""
    return _times_sigmoid(f, x, x)


def gelu_tanh(f: Function, x: Value) -> Value:
    """`x / 2 * (1 + tanh(u))`, which is `x * sigmoid(2 u)`."""
    cube = x * x * x
    return _times_sigmoid(f, x, f.fma(cube, f.constant(FLOATS, 0.044715), x) * (2 * sqrt(2 / pi)))


def relu(f: Function, x: Value) -> Value:
    """x where it is above 0; not a number stays so."""
    return f.choose(x < 0.0, 0.0, x, FLOATS)


def relu2(f: Function, x: Value) -> Value:
    """Its square."""
    positive = relu(f, x)
    return positive * positive


VECTOR_ACTIVATIONS: dict[str, Callable[[Function, Value], Value]] = {
    "silu": silu,
    "gelu_tanh": gelu_tanh,
    "relu": relu,
    "relu2": relu2,
}

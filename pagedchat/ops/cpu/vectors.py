"""16 floats at a time: loads and stores of some of them, and functions that LLVM does not have, the exponential and
activations made of it."""

from collections.abc import Callable
from math import log, pi, sqrt

from pagedchat.jit.cpu.ir import FLOAT, I32, I64, PTR, Function, Value, Variable, vector
from pagedchat.jit.cpu.target import CpuTarget

LANES = 16
FLOATS, INTS = vector(LANES, FLOAT), vector(LANES, I32)

_LEAST, _MOST = -87.0, 88.0
"""Arguments that are still normal numbers, and none above."""
_LN2_HIGH = 0.693359375
_LN2_LOW = log(2) - _LN2_HIGH
_WHOLE = 1.5 * 2.0**23
"""Added to a float, it leaves a whole number in its lower bits."""
_WHOLE_BITS = 0x4B400000
"""Its own bits."""
_TERMS = (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0)
"""Of the series of the exponential, the highest power first; below ln(2) / 2 what is left out is under 2e-7."""


def load_lanes(f: Function, at: Value, mask: Value | None) -> Value:
    """16 floats, or those that a mask says, and zeros."""
    return f.load(FLOATS, at, aligned=4) if mask is None else f.load_some(FLOATS, at, mask)


def store_lanes(f: Function, floats: Value, at: Value, mask: Value | None) -> None:
    """All 16, or those that a mask says."""
    if mask is None:
        f.store(floats, at, aligned=4)
    else:
        f.store_some(floats, at, mask)


def bias_lanes(f: Function, bias: Value, column: Value, mask: Value | None) -> Variable:
    """16 columns of a bias from one of them on: of float32 at an address, or zeros where that is 0."""
    found = f.variable(FLOATS, 0.0)
    with f.when(bias.differs(0)):
        found.value = load_lanes(f, f.at(f.convert("inttoptr", bias, PTR), column, FLOAT), mask)
    return found


def store_result(f: Function, floats: Value, place: Value, adds: Value, mask: Value | None) -> None:
    """16 columns of a product into a result, added to what is there unless `adds` is 0."""
    result = f.variable(FLOATS, floats)
    with f.when(adds.differs(0)):
        result.value = result.value + load_lanes(f, place, mask)
    store_lanes(f, result.value, place, mask)


def at_most(f: Function, number: Value, limit: Value | int) -> Value:
    """The smaller of two, an i64."""
    return f.choose(number < limit, number, limit, I64)


def by_columns(f: Function, target: CpuTarget, left: Value, write: Callable[[Value | None], None]) -> None:
    """Write what is done to 16 columns, of which so many are left, with a mask, or with none where all are there:
    with AVX2 a store under a mask takes as long as twenty without one.

    Args:
        f: where the instructions go.
        target: by its registers masks cost nothing or much.
        left: an i64.
        write: takes the mask; called twice where it is to be written twice.
    """
    if target.has_wide_registers:
        write(f.first_lanes(left, LANES))
        return
    with f.when(left >= LANES):
        write(None)
    with f.when(left < LANES):
        write(f.first_lanes(left, LANES))


def exponential(f: Function, x: Value) -> Value:
    """e to the power of x; of what is out of range the bound's. Relative error below 4e-7."""
    x = f.largest(x, f.constant(FLOATS, _LEAST))
    x = f.call(FLOATS, "llvm.minnum.v16f32", [x, f.constant(FLOATS, _MOST)])
    shifted = x * (1 / log(2)) + _WHOLE
    power = shifted - _WHOLE
    rest = f.fma(power, f.constant(FLOATS, -_LN2_HIGH), x)
    rest = f.fma(power, f.constant(FLOATS, -_LN2_LOW), rest)
    total = f.constant(FLOATS, _TERMS[0])
    for term in _TERMS[1:]:
        total = f.fma(total, rest, f.constant(FLOATS, term))
    exponent = (f.convert("bitcast", shifted, INTS) + 127) << 23  # of the upper bits nothing is left
    return total * f.convert("bitcast", exponent, FLOATS)


def rounded(f: Function, x: Value) -> Value:
    """To the nearest whole number, and of two to the even one: 16 of them, of floats up to 4 million; 0 of what is
    no number. LLVM's own conversion that holds for all floats goes lane by lane."""
    shifted = f.convert("bitcast", x + _WHOLE, INTS)
    return f.choose(x.differs(x), 0, shifted - _WHOLE_BITS, INTS)


def transposed(f: Function, vectors: list[Value]) -> list[Value]:
    """Vectors of 16 -> as many, in which the first elements of all stand side by side, then the second ones and so
    on. Two that lie half of them apart become a pair whose elements take turns, as often as there are to halve.

    Args:
        vectors: a power of two of them.
    """
    turns = [lane for pair in zip(range(LANES), range(LANES, 2 * LANES), strict=True) for lane in pair]
    return _taking_turns(f, vectors, turns)


def transposed_in_pairs(f: Function, vectors: list[Value]) -> list[Value]:
    """8 vectors of 8 pairs -> as many, in which the first pairs of all stand side by side, then the second ones."""
    turns = [2 * pair + lane for i in range(LANES // 2) for pair in (i, i + LANES // 2) for lane in (0, 1)]
    return _taking_turns(f, vectors, turns)


def _taking_turns(f: Function, vectors: list[Value], turns: list[int]) -> list[Value]:
    """Two vectors that lie half of them apart become the lanes `turns` of both, as often as there are to halve."""
    half = len(vectors) // 2
    for _ in range(half.bit_length()):
        vectors = [
            f.lanes(vectors[i], some, vectors[i + half])
            for i in range(half)
            for some in (turns[:LANES], turns[LANES:])
        ]
    return vectors


def gathered(f: Function, vectors: list[Value]) -> Value:
    """16 vectors -> one, whose lane i is the sum of the elements of vector i, in the order of `Function.folded`.

    Two vectors at a time become one, in which their halves are added; then pairs of those by their quarters, and so
    on: a run of so many lanes is always of one of the first vectors.
    """
    for width in (8, 4, 2, 1):
        vectors = folded_in_pairs(f, vectors, width)
    return vectors[0]


def folded_in_pairs(f: Function, vectors: list[Value], width: int) -> list[Value]:
    """One of the steps of `gathered`: half as many vectors, whose runs are `width` lanes long."""
    starts = range(0, LANES, 2 * width)
    low = [side + start + lane for start in starts for side in (0, LANES) for lane in range(width)]
    high = [index + width for index in low]
    half = len(vectors) // 2
    pairs = zip(vectors[:half], vectors[half:], strict=True)
    return [f.lanes(one, low, other) + f.lanes(one, high, other) for one, other in pairs]


def summed_by_lane(f: Function, vectors: list[Value]) -> list[Value]:
    """The sum of the elements of each vector, of any number of them."""
    sums: list[Value] = []
    for start in range(0, len(vectors), LANES):
        some = vectors[start : start + LANES]
        together = gathered(f, some + [f.constant(FLOATS, 0.0)] * (LANES - len(some)))
        sums += [f.lane(together, i) for i in range(len(some))]
    return sums


def smallest(f: Function, x: Value, limit: Value) -> Value:
    """The smaller one; not a number stays so."""
    return f.choose(limit < x, limit, x, FLOATS)


def times_sigmoid(f: Function, x: Value, inside: Value) -> Value:
    """`x * sigmoid(inside)`."""
    return x / (exponential(f, inside * -1.0) + 1.0)


def silu(f: Function, x: Value) -> Value:
    """`x * sigmoid(x)`."""
    return times_sigmoid(f, x, x)


def gelu_tanh(f: Function, x: Value) -> Value:
    """`x / 2 * (1 + tanh(u))`, which is `x * sigmoid(2 u)`."""
    cube = x * x * x
    return times_sigmoid(f, x, f.fma(cube, f.constant(FLOATS, 0.044715), x) * (2 * sqrt(2 / pi)))


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

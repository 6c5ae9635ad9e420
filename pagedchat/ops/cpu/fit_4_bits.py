"""The kernel that brings groups of floats into 4 bits, by the steps of `ops.quantized.quantize`.

Arguments: floats (float32 [num_groups, group_size]), group_size, a multiple of 16, digits (uint8 [num_groups,
group_size / 2], as `QuantizedWeight` has them), scales and minimums (float16 [num_groups]). A unit is a group. Of a
group with a number that is not finite the minimum is none.
"""

from pagedchat.jit.cpu.ir import FLOAT, HALF, I8, I64, PTR, Function, Module, Value, Variable, vector
from pagedchat.ops.cpu.dense_elements import argument
from pagedchat.ops.cpu.vectors import FLOATS, INTS, LANES
from pagedchat.ops.quantized.steps import FITS, SHARES, STEPS_4, ZERO_OF_4_BITS

_WHOLE = 1.5 * 2.0**23
"""Added to a float and taken off again, it leaves a whole number."""
_LARGEST = 3.4e38


def write_fit_4_bits(module: Module) -> None:
    """`fit_4_bits`."""
    f = module.function("fit_4_bits", [("args", PTR), ("first", I64), ("last", I64)])
    groups = _Groups(f)
    with f.loop(f.parameter("first"), f.parameter("last")) as group:
        groups.write(group)
    f.finish()


class _Groups:
    def __init__(self, f: Function) -> None:
        args = f.parameter("args")
        self._f = f
        self._floats, self._digits, self._scales, self._minimums = (argument(f, args, i, PTR) for i in (0, 2, 3, 4))
        self._size = argument(f, args, 1)
        self._count = f.convert("sitofp", self._size, FLOAT)

    def write(self, group: Value) -> None:
        f = self._f
        group_at = f.at(self._floats, group * self._size, FLOAT)
        low, high, total = self._span(group_at)
        middle, half = (low + high) / 2.0, (high - low) / 2.0
        best, step, start = f.variable(FLOAT, -1.0), f.variable(FLOAT, 0.0), f.variable(FLOAT, low)
        for share in SHARES:
            its_step, its_start, gain = self._fitted(
                group_at, total, half * (2 * share / STEPS_4), middle - half * share
            )
            with f.when(best.value < gain):
                best.value, step.value, start.value = gain, its_step, its_start
        for _ in range(FITS):
            step.value, start.value, _ = self._fitted(group_at, total, step.value, start.value)
        self._store(group, group_at, step.value, start.value, total)

    def _load(self, group_at: Value, k: Value) -> Value:
        return self._f.load(FLOATS, self._f.at(group_at, k, FLOAT), aligned=4)

    def _span(self, group_at: Value) -> tuple[Value, Value, Value]:
        """The smallest, the largest and the sum."""
        f = self._f
        least, most = (f.variable(FLOATS, -_LARGEST) for _ in range(2))
        total = f.variable(FLOATS, 0.0)
        with f.loop(0, self._size, LANES) as k:
            each = self._load(group_at, k)
            least.value, most.value = f.largest(least.value, each * -1.0), f.largest(most.value, each)
            total.value = total.value + each
        low = f.folded(least.value, LANES, "largest") * -1.0
        return low, f.folded(most.value, LANES, "largest"), f.folded(total.value, LANES)

    def _fitted(self, group_at: Value, total: Value, step: Value, start: Value) -> tuple[Value, Value, Value]:
        """See `quantize._fitted`."""
        f = self._f
        inverse = self._inverse(step)
        sums = [f.variable(FLOATS, 0.0) for _ in range(3)]
        of_digits, along, squares = sums
        with f.loop(0, self._size, LANES) as k:
            each = self._load(group_at, k)
            digits = self._digits_of(each, start, inverse, 0.0, float(STEPS_4))
            _add(of_digits, digits)
            along.value = f.fma(digits, each, along.value)
            squares.value = f.fma(digits, digits, squares.value)
        number, product, square = (f.folded(each.value, LANES) for each in sums)
        spread = square * self._count - number * number
        moved = (product * self._count - number * total) / spread
        new_step = f.choose(spread <= 0.0, 0.0, moved, FLOAT)
        new_start = (total - new_step * number) / self._count
        return new_step, new_start, new_step * product + new_start * total

    def _digits_of(self, each: Value, start: Value, inverse: Value, least: float, most: float) -> Value:
        """Whole numbers, as floats."""
        f = self._f
        steps = (each - f.splat(start, LANES)) * f.splat(inverse, LANES)
        steps = f.largest(steps, f.constant(FLOATS, least))
        steps = f.choose(steps < most, steps, most, FLOATS)
        return steps + _WHOLE - _WHOLE

    def _inverse(self, step: Value) -> Value:
        f = self._f
        inverse = f.constant(FLOAT, 1.0) / step
        return f.choose(f.unary("fabs", inverse) <= _LARGEST, inverse, 0.0, FLOAT)

    def _store(self, group: Value, group_at: Value, step: Value, start: Value, total: Value) -> None:
        f = self._f
        halves, zero = vector(LANES, HALF), float(ZERO_OF_4_BITS)
        # What is not finite, times zero, is no number; all else stays.
        minimum = start + step * zero + total * 0.0
        scale_half, minimum_half = (f.convert("fptrunc", f.splat(each, LANES), halves) for each in (step, minimum))
        for each, place in ((scale_half, self._scales), (minimum_half, self._minimums)):
            f.store(f.lane(each, 0), f.at(place, group, HALF), aligned=2)
        scale, minimum = (f.lane(f.convert("fpext", each, FLOATS), 0) for each in (scale_half, minimum_half))
        inverse = self._inverse(scale)
        with f.loop(0, self._size, LANES) as k:
            digits = self._digits_of(self._load(group_at, k), minimum, inverse, -zero, STEPS_4 - zero) + zero
            numbers = f.convert("fptosi", digits, INTS)
            low, high = (f.lanes(numbers, range(i, LANES, 2)) for i in (0, 1))
            both = f.convert("trunc", low | (high << 4), vector(LANES // 2, I8))
            f.store(both, f.at(self._digits, (group * self._size + k) >> 1, I8))


def _add(total: Variable, each: Value) -> None:
    total.value = total.value + each

"""What weights in float32 and bfloat16 and the inputs of their products are, in runs of 32 elements, and how they
are multiplied: for the kernels of few rows and of many, whose sums are to be the same.

- "f32": weights and inputs in float32, two vectors of 16.
- "bf16": a weight's run becomes the even elements and the odd ones, in float32, which is a shift and a mask; inputs
  are float32 in the same order.
- "rounded": inputs are rounded to bfloat16 too, and pairs of products are summed by one instruction (`vdpbf16ps`),
  in float32. For processors that start one every cycle.
"""

from dataclasses import dataclass

from pagedchat.jit.cpu.ir import BFLOAT, FLOAT, I16, I64, Function, Value, vector
from pagedchat.jit.cpu.target import CpuTarget
from pagedchat.ops.cpu.vectors import FLOATS, INTS, LANES

RUN = 32
"""Elements that are taken at a time."""
_PAIRS = vector(RUN, BFLOAT)


@dataclass(frozen=True, slots=True)
class DenseElement:
    """One of the three."""

    name: str
    """Of it, and in the names of kernels."""

    @property
    def size(self) -> int:
        """Bytes of an element of a weight."""
        return 4 if self.name == "f32" else 2

    @property
    def kind(self) -> str:
        """LLVM's type of it."""
        return FLOAT if self.name == "f32" else I16

    @property
    def input_kind(self) -> str:
        """The same of an input."""
        return I16 if self.name == "rounded" else FLOAT

    @property
    def num_vectors(self) -> int:
        """Of 64 bytes, that a run of inputs has."""
        return 1 if self.name == "rounded" else 2

    @property
    def input_lanes(self) -> int:
        """Elements of each of them."""
        return RUN // self.num_vectors

    def run(self, f: Function, at: Value) -> list[Value]:
        """32 elements of a weight, as the vectors that are multiplied."""
        if self.name == "f32":
            return [f.load(FLOATS, at, aligned=4), f.load(FLOATS, f.at(at, LANES, FLOAT), aligned=4)]
        if self.name == "rounded":
            return [f.load(_PAIRS, at, aligned=2)]
        return _widened(f, f.load(INTS, at, aligned=2))

    def part_of_run(self, f: Function, at: Value, count: Value) -> list[Value]:
        """The same of so many elements, and zeros."""
        if self.name == "f32":
            first, second = f.first_lanes(count, LANES), f.first_lanes(count - LANES, LANES)
            return [f.load_some(FLOATS, at, first), f.load_some(FLOATS, f.at(at, LANES, FLOAT), second)]
        shorts = f.load_some(vector(RUN, I16), at, f.first_lanes(count, RUN))
        if self.name == "rounded":
            return [f.convert("bitcast", shorts, _PAIRS)]
        return _widened(f, f.convert("bitcast", shorts, INTS))

    def inputs(self, f: Function, at: Value, *, aligned: int) -> Value:
        """A vector of inputs."""
        return f.load(_PAIRS if self.name == "rounded" else FLOATS, at, aligned=aligned)

    def added(self, f: Function, total: Value, weights: Value, inputs: Value) -> Value:
        """16 sums, and what a vector of each brings."""
        if self.name == "rounded":
            return f.call(FLOATS, "llvm.x86.avx512bf16.dpbf16ps.512", [total, weights, inputs])
        return f.fma(weights, inputs, total)


def bf16_element(target: CpuTarget) -> DenseElement:
    """Which one is for weights in bfloat16."""
    return DenseElement("rounded" if target.multiplies_bf16 else "bf16")


def rounded_run(f: Function, first: Value, second: Value) -> Value:
    """Two vectors of 16 floats -> 32 elements in bfloat16, each the nearest."""
    return f.call(_PAIRS, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", [second, first])


def argument(f: Function, args: Value, index: int, kind: str = I64) -> Value:
    """One of a kernel's arguments."""
    return f.load(kind, f.at(args, index, I64), aligned=8)


def _widened(f: Function, pairs: Value) -> list[Value]:
    """bfloat16 is the upper half of a float32."""
    return [f.convert("bitcast", each, FLOATS) for each in (pairs << 16, pairs & -65536)]

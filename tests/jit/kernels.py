"""A kernel folder of a few lines, for tests that compile."""

from pathlib import Path

from pagedchat.jit.builder import KernelBuilder
from pagedchat.jit.cache import KernelCache
from pagedchat.jit.variant import Variant

SCALE = """\
#include "numbers.cuh"

// Grid: (ceil(n / blockDim.x))
extern "C" __global__ void scale(float* out, const float* in, long long n, int add, float factor) {
  const long long i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] * factor * FACTOR + add;
}
"""
NUMBERS = '#pragma once\n#include "more.cuh"\n#ifndef FACTOR\n#define FACTOR 1\n#endif\n'
MORE = "#pragma once\nconstexpr int MORE = 1;\n"
SCALE_BY_2 = Variant.of("scale", FACTOR=2)


def write_kernels(folder: Path) -> Path:
    """`folder` with the kernel `scale`, a header of it and one of that."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scale.cu").write_text(SCALE)
    (folder / "numbers.cuh").write_text(NUMBERS)
    (folder / "more.cuh").write_text(MORE)
    return folder


def builder_in(root: Path) -> KernelBuilder:
    """A builder without memory of its own: from `root/kernels` into `root/cache`."""
    return KernelBuilder(root / "kernels", KernelCache(root / "cache"))

"""Kernels that are wrong on purpose: each is told what it does, or computes something else in some order of warps."""

from pathlib import Path

import pytest
import torch

from pagedchat.errors import KernelError
from tests.tools.emulator_case import SEEDS, Kernels, needs_compiler
from tools.emulator.errors import KernelFaultError

pytestmark = needs_compiler

TEXT = r"""
#include "mbarrier.cuh"
#include "async_copy.cuh"

extern "C" __global__ void __launch_bounds__(256) reverse(int* out, const int* in) {
  __shared__ int kept[256];
  kept[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = kept[255 - threadIdx.x];
}

extern "C" __global__ void reverse_too_soon(int* out, const int* in) {
  __shared__ int kept[256];
  kept[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = kept[255 - threadIdx.x];
}

extern "C" __global__ void write_over_too_soon(int* out, const int* in) {
  __shared__ int kept[256];
  kept[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  const int mine = kept[255 - threadIdx.x];
  kept[threadIdx.x] = 0;
  out[threadIdx.x] = mine;
}

template <bool WAITS>
__device__ void copy(int* out, const int* in) {
  extern __shared__ __align__(16) int tile[];
  copy_16_async(tile + 4 * threadIdx.x, in + 4 * threadIdx.x);
  commit_copies();
  if (WAITS) wait_copies<0>();
  for (int i = 0; i < 4; i++) out[4 * threadIdx.x + i] = tile[4 * threadIdx.x + i];
}
extern "C" __global__ void copy_async(int* out, const int* in) { copy<true>(out, in); }
extern "C" __global__ void copy_async_too_soon(int* out, const int* in) { copy<false>(out, in); }

template <bool WAITS, bool STAYS>
__device__ void fetch(int* out, const int* in) {
  __shared__ alignas(16) int tile[64];
  __shared__ uint64 barrier;
  const uint32 place = __cvta_generic_to_shared(&barrier), to = __cvta_generic_to_shared(tile);
  if (threadIdx.x == 0) init_barrier(place, 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(place), "r"(256) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(in), "r"(256), "r"(place)
                 : "memory");
  }
  if (WAITS) wait(place, 0);
  out[threadIdx.x] = tile[threadIdx.x];
  if (STAYS) wait(place, 0);
}
extern "C" __global__ void bulk(int* out, const int* in) { fetch<true, true>(out, in); }
extern "C" __global__ void bulk_too_soon(int* out, const int* in) { fetch<false, true>(out, in); }
extern "C" __global__ void bulk_left_behind(int* out, const int* in) { fetch<false, false>(out, in); }

extern "C" __global__ void half_of_them_wait(int* out) {
  __shared__ uint64 barrier;
  const uint32 place = __cvta_generic_to_shared(&barrier);
  if (threadIdx.x == 0) init_barrier(place, 2);
  __syncthreads();
  if (threadIdx.x == 0) arrive(place);
  if (threadIdx.x < 32) wait(place, 0);
  __syncthreads();
}

extern "C" __global__ void poll(int* out) {
  int value;
  do {
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(out) : "memory");
  } while (value == 0);
}

extern "C" __global__ void arrive_twice(int* out) {
  __shared__ uint64 barrier;
  const uint32 place = __cvta_generic_to_shared(&barrier);
  if (threadIdx.x == 0) init_barrier(place, 1);
  __syncthreads();
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(place), "r"(16) : "memory");
}

extern "C" __global__ void misaligned(int* out) {
  extern __shared__ __align__(16) int tile[];
  copy_16_async(tile + 1, out);
}

extern "C" __global__ void behind_the_end(int* out) {
  extern __shared__ int tile[];
  tile[256 * (threadIdx.x + 1)] = 1;
}

extern "C" __global__ void beside(int* out) {
  __shared__ int some[8];
  some[8 + threadIdx.x] = 1;
}

extern "C" __global__ void far_address(int* out) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(1 << 20), "r"(1) : "memory");
}

extern "C" __global__ void nowhere(int* out) {
  if (threadIdx.x == 33) *reinterpret_cast<int*>(8 * static_cast<int64>(threadIdx.x)) = 1;
}

extern "C" __global__ void trap(int* out) {
  if (threadIdx.x == 40) __trap();
}

extern "C" __global__ void not_in_the_mask(int* out) { out[threadIdx.x] = __shfl_sync(0xffff, 1, 0); }

extern "C" __global__ void two_functions(int* out) {
  if (threadIdx.x % 2) {
    out[threadIdx.x] = __shfl_sync(0xffffffff, 1, 0);
  } else {
    out[threadIdx.x] = __ballot_sync(0xffffffff, 1);
  }
}

extern "C" __global__ void unknown(int* out) { asm volatile("bfind.u32 %0, %0;" : "+r"(*out)); }
"""
NUMBERS = torch.arange(1, 257, dtype=torch.int32)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    return Kernels(tmp_path_factory.mktemp("kernels"), TEXT)


def results(kernels: Kernels, entry: str, threads: int, shared: int = 0) -> list[torch.Tensor]:
    """In several orders of warps; behind what was not written stays -1."""
    outputs = []
    for seed in SEEDS:
        outputs.append(torch.full_like(NUMBERS, -1))
        kernels.run(entry, outputs[-1], NUMBERS, threads=threads, seed=seed, shared=shared)
    return outputs


@pytest.mark.parametrize("entry", ["reverse_too_soon", "write_over_too_soon"])
def test_a_missing_barrier_shows_in_some_order(kernels: Kernels, entry: str) -> None:
    wanted = NUMBERS.flip(0)
    assert all(torch.equal(result, wanted) for result in results(kernels, "reverse", 256))
    assert not all(torch.equal(result, wanted) for result in results(kernels, entry, 256))


def test_a_missing_wait_for_a_copy_shows(kernels: Kernels) -> None:
    assert all(torch.equal(result, NUMBERS) for result in results(kernels, "copy_async", 64, shared=1024))
    assert not any(torch.equal(result, NUMBERS) for result in results(kernels, "copy_async_too_soon", 64, shared=1024))


def test_a_missing_wait_for_a_bulk_copy_shows(kernels: Kernels) -> None:
    assert all(torch.equal(result[:64], NUMBERS[:64]) for result in results(kernels, "bulk", 64))
    assert not all(torch.equal(result[:64], NUMBERS[:64]) for result in results(kernels, "bulk_too_soon", 64))


FAULTS = {
    "half_of_them_wait": r"deadlock.*\n.*: 32 threads wait for __syncthreads \(small.cu:\d+\)"
    r"\n.*: 32 threads wait for an mbarrier \(mbarrier.cuh:\d+\)",
    "poll": r"deadlock.*\n.*: 64 threads wait for something in memory \(small.cu:\d+\)",
    "arrive_twice": r"more arrivals at an mbarrier than its phase has: thread block \(0, 0, 0\), thread \(\d+, 0, 0\)",
    "misaligned": r"cp.async at an address of shared memory that is not a multiple of 16:.*async_copy.cuh:\d+",
    "behind_the_end": "memory behind the end of shared memory is touched: .*lane",
    "beside": "memory between or behind shared variables was written",
    "far_address": "a store outside of shared memory: .*small.cu",
    "nowhere": r"memory that is not there is touched: thread block \(0, 0, 0\), thread \(33, 0, 0\), warp 1, lane 1",
    "trap": r"__trap: .*thread \(40, 0, 0\)",
    "not_in_the_mask": "a lane is not in the mask of the warp function that it calls",
    "two_functions": r"lanes of a warp meet in different functions, another one at small.cu:\d+",
    "unknown": r"the emulator does not know this PTX: bfind.u32%,%;",
}


@pytest.mark.parametrize("entry", FAULTS)
def test_a_fault_is_told_with_its_place(kernels: Kernels, entry: str) -> None:
    with pytest.raises(KernelFaultError, match=FAULTS[entry]):
        kernels.run(entry, torch.zeros(256, dtype=torch.int32), shared=1024)
    test_after_a_fault_the_next_launch_is_right(kernels)


def test_after_a_fault_the_next_launch_is_right(kernels: Kernels) -> None:
    output = torch.zeros_like(NUMBERS)
    kernels.run("reverse", output, NUMBERS, threads=256)
    assert torch.equal(output, NUMBERS.flip(0))


def test_a_thread_block_that_ends_before_its_copies_is_told(kernels: Kernels) -> None:
    with pytest.raises(KernelFaultError, match="a thread block (that has ended|ends while copies to it are under way)"):
        for seed in range(1, 20):
            kernels.run("bulk_left_behind", torch.zeros_like(NUMBERS), NUMBERS, seed=seed)


def test_what_a_launch_lacks_is_named(kernels: Kernels, tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="Kernel reverse takes 2 arguments, got 1"):
        kernels.run("reverse", NUMBERS)
    with pytest.raises(KernelError, match="was not allowed 65536 bytes"):
        kernels.run("reverse", NUMBERS, NUMBERS, shared=65536)
    with pytest.raises(KernelError, match="There is no kernel nothing in small"):
        kernels.run("nothing", NUMBERS)
    with pytest.raises(KernelError, match=r"does not compile for the CPU: .*small.cu:2:.*error: .*nonsense"):
        Kernels(tmp_path, '\nextern "C" __global__ void bad(int* x) { nonsense(x); }\n').run("bad", NUMBERS)

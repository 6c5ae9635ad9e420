"""Kernels that are wrong on purpose (emulated_kernels/faulty.cu).

Each is told what it does, or computes something else in some order of warps.
"""

from pathlib import Path

import pytest
import torch

from pagedchat.errors import KernelError
from pagedchat.ops.common import arrivals
from tests.tools.emulator_case import SEEDS, Kernels, needs_compiler
from tools.emulator.errors import KernelFaultError
from tools.emulator.fences import FencedTensors, Side
from tools.emulator.ops import kernels_on_cpu

pytestmark = needs_compiler

NUMBERS = torch.arange(1, 257, dtype=torch.int32)


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    return Kernels("faulty")


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
    assert not any(
        torch.equal(result, NUMBERS) for result in results(kernels, "copy_async_too_soon", 64, shared=1024)
    )


def test_a_copy_over_what_is_still_read_shows(kernels: Kernels) -> None:
    wanted = NUMBERS[:64].flip(0)
    assert all(torch.equal(result[:64], wanted) for result in results(kernels, "copy_over_what_was_read", 64))
    assert not all(torch.equal(result[:64], wanted) for result in results(kernels, "copy_over_too_soon", 64))


def test_a_missing_wait_for_a_bulk_copy_shows(kernels: Kernels) -> None:
    assert all(torch.equal(result[:64], NUMBERS[:64]) for result in results(kernels, "bulk", 64))
    assert not all(torch.equal(result[:64], NUMBERS[:64]) for result in results(kernels, "bulk_too_soon", 64))


@pytest.mark.parametrize("grid", [(1, 65_536), (1, 1, 65_536)], ids=str)
def test_a_grid_that_no_gpu_takes_is_refused(kernels: Kernels, grid: tuple[int, ...]) -> None:
    with pytest.raises(KernelError, match="which no GPU takes"):
        kernels.run("trap", torch.zeros(1), grid=grid)


FAULTS = {
    "half_of_them_wait": r"deadlock.*\n.*: 32 threads wait for __syncthreads \(faulty.cu:\d+\)"
    r"\n.*: 32 threads wait for an mbarrier \(mbarrier.cuh:\d+\)",
    "poll": r"deadlock.*\n.*: 64 threads wait for something in memory \(faulty.cu:\d+\)",
    "arrive_twice": r"more arrivals at an mbarrier than its phase has: thread block \(0, 0, 0\), thread \(",
    "misaligned": r"cp.async at an address of shared memory that is not a multiple of 16:.*async_copy.cuh:\d+",
    "behind_the_end": "memory behind the end of shared memory is touched: .*lane",
    "beside": "memory between or behind shared variables was written",
    "far_address": "a store outside of shared memory: .*faulty.cu",
    "nowhere": r"memory that is not there is touched: .*, thread \(33, 0, 0\), warp 1, lane 1",
    "trap": r"__trap: .*thread \(40, 0, 0\)",
    "not_in_the_mask": "a lane is not in the mask of the warp function that it calls",
    "two_functions": r"lanes of a warp meet in different functions, another one at faulty.cu:\d+",
    "unknown": r"the emulator does not know this PTX: bfind.u32%,%;",
}


@pytest.mark.parametrize("entry", FAULTS)
def test_a_fault_is_told_with_its_place(kernels: Kernels, entry: str) -> None:
    with pytest.raises(KernelFaultError, match=FAULTS[entry]):
        kernels.run(entry, torch.zeros(256, dtype=torch.int32), shared=1024)
    test_after_a_fault_the_next_launch_is_right(kernels)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("entry", "side"),
    [
        ("read_before", Side.BEFORE),
        ("write_before", Side.BEFORE),
        ("read_behind", Side.BEHIND),
        ("write_behind", Side.BEHIND),
        ("copy_async_behind", Side.BEHIND),
        ("bulk_behind", Side.BEHIND),
    ],
)
def test_what_lies_beside_a_tensor_is_not_there(entry: str, side: Side, seed: int, kernels: Kernels) -> None:
    told = r"memory that is not there is touched: thread block \(0, 0, 0\), thread \("
    with pytest.raises(KernelFaultError, match=told), FencedTensors(side):
        kernels.run(entry, torch.zeros(256, dtype=torch.int32), seed=seed)


@pytest.mark.parametrize(("entry", "side"), [("write_before", Side.BEHIND), ("write_behind", Side.BEFORE)])
def test_a_write_on_the_side_without_a_fence_is_told_at_the_end(entry: str, side: Side, kernels: Kernels) -> None:
    told = "Memory beside a tensor of 1024 bytes was written"
    with pytest.raises(KernelFaultError, match=told), FencedTensors(side):
        kernels.run(entry, torch.zeros(256, dtype=torch.int32))


@pytest.mark.parametrize("side", Side)
def test_a_fenced_tensor_is_like_any_other(side: Side, kernels: Kernels) -> None:
    with FencedTensors(side):
        numbers, empty = torch.arange(1, 257, dtype=torch.int32), torch.empty(3)
        output = torch.zeros_like(numbers)
        kernels.run("reverse", output, numbers, threads=256)
        part = numbers.view(16, 16)[1:, ::3]
        part += 1
    assert bool(empty.isnan().all())
    assert torch.equal(output, NUMBERS.flip(0))
    assert torch.equal(numbers.view(16, 16)[1:, ::3], NUMBERS.view(16, 16)[1:, ::3] + 1)
    assert numbers.data_ptr() % 16 == empty.data_ptr() % 16 == 0


def test_arrivals_that_are_not_counted_back_are_told_at_the_end() -> None:
    told = "left counters of arrivals that are not zero"
    with pytest.raises(KernelFaultError, match=told), kernels_on_cpu():
        arrivals.arrival_counters(torch.device("cpu"), 4)[3] = 1


def test_what_is_handed_over_and_not_taken_is_told_at_the_end() -> None:
    told = "left words that were handed over and not taken"
    with pytest.raises(KernelFaultError, match=told), kernels_on_cpu():
        arrivals.handover_words(torch.device("cpu"), 4)[3] = 1


def test_after_a_fault_the_next_launch_is_right(kernels: Kernels) -> None:
    output = torch.zeros_like(NUMBERS)
    kernels.run("reverse", output, NUMBERS, threads=256)
    assert torch.equal(output, NUMBERS.flip(0))


def test_a_thread_block_that_ends_before_its_copies_is_told(kernels: Kernels) -> None:
    told = r"a thread block (that has ended|ends while copies to it are under way)"
    with pytest.raises(KernelFaultError, match=told):  # unless the copy is quick
        results(kernels, "bulk_left_behind", 64)


def test_what_a_launch_lacks_is_named(kernels: Kernels, tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="Kernel reverse takes 2 arguments, got 1"):
        kernels.run("reverse", NUMBERS)
    with pytest.raises(KernelError, match="was not allowed 65536 bytes"):
        kernels.run("reverse", NUMBERS, NUMBERS, shared=65536)
    with pytest.raises(KernelError, match="There is no kernel nothing in faulty"):
        kernels.run("nothing", NUMBERS)
    (tmp_path / "bad.cu").write_text(
        '\nextern "C" __global__ void bad(int* x) { nonsense(x); }\n', encoding="utf-8"
    )
    with pytest.raises(KernelError, match=r"does not compile for the CPU: .*bad.cu:2:.*error: .*nonsense"):
        Kernels("bad", folder=tmp_path).run("bad", NUMBERS)

"""What the emulator computes beside what torch does (emulated_kernels/values.cu)."""

import pytest
import torch

from tests.tools.emulator_case import SEEDS, Kernels, needs_compiler

pytestmark = needs_compiler
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


@pytest.fixture(scope="module", params=DTYPES)
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return Kernels("values", ELEMENT=request.param)


def matrix(kernels: Kernels, rows: int, columns: int) -> torch.Tensor:
    return torch.randn(rows, columns).to(DTYPES[kernels.constants["ELEMENT"]])


def test_every_16_bit_number_is_what_torch_makes_of_it(kernels: Kernels) -> None:
    bits = torch.arange(1 << 16).to(torch.int32).to(torch.int16)
    found = [torch.empty(1 << 16) for _ in range(2)]
    kernels.run("widen", *found, bits, bits, grid=256, threads=256, seed=0)
    for result, dtype in zip(found, DTYPES.values(), strict=True):
        torch.testing.assert_close(result, bits.view(dtype).float(), rtol=0, atol=0, equal_nan=True)


def test_numbers_are_rounded_as_torch_does(kernels: Kernels) -> None:
    halves = torch.arange(1 << 16).to(torch.int32).to(torch.int16).view(torch.float16)[: 31 << 10].float()
    between = (halves[1:] + halves[:-1]) / 2  # ties
    others = torch.tensor([65504, 65519.9, 65520, 1e30, 1e-8, 3e-8, 2.0**-25, torch.inf, torch.nan, 3.4e38])
    numbers = torch.cat([halves, between, between * (1 + 1e-6), others, torch.randn(1000)])
    numbers = torch.cat([numbers, -numbers])[: len(numbers) * 2 // 256 * 256]
    found = [torch.empty(len(numbers), dtype=dtype) for dtype in DTYPES.values()]
    kernels.run("narrow", *found, numbers, grid=len(numbers) // 256, threads=256, seed=0)
    for result in found:
        torch.testing.assert_close(result, numbers.to(result.dtype), rtol=0, atol=0, equal_nan=True)


def test_a_product_of_a_warp(kernels: Kernels) -> None:
    left, right, result = matrix(kernels, 16, 16), matrix(kernels, 8, 16), torch.empty(16, 8)
    kernels.run("multiply", result, left, right, threads=32)
    torch.testing.assert_close(result, left.float() @ right.float().T)


def test_a_product_of_a_warpgroup_is_there_when_it_was_waited_for(kernels: Kernels) -> None:
    left, right = matrix(kernels, 64, 16), matrix(kernels, 64, 16)
    wanted = left.float() @ right.float().T
    right_ones = []
    for seed in SEEDS:
        result, too_soon = torch.empty(64, 64), torch.empty(64, 64)
        kernels.run("multiply_64", result, left, right, threads=128, seed=seed)
        torch.testing.assert_close(result, wanted)
        kernels.run("multiply_64_too_soon", too_soon, left, right, threads=128, seed=seed)
        right_ones.append(torch.allclose(too_soon, wanted, atol=1e-4))
    assert not all(right_ones)


def test_lanes_exchange_values(kernels: Kernels) -> None:
    found, lanes = torch.empty(5, 32, dtype=torch.int32), range(32)
    kernels.run("exchange", found, threads=32)
    assert found[0].tolist() == [lane // 8 * 8 + (lane + 1) % 8 for lane in lanes]
    assert found[1].tolist() == [lane - 3 if lane >= 3 else lane for lane in lanes]
    assert found[2].tolist() == [lane + 3 if lane < 29 else lane for lane in lanes]
    assert found[3].tolist() == [lane ^ 5 for lane in lanes]
    assert set(found[4].tolist()) == {sum(1 << lane for lane in range(0, 32, 3))}


@pytest.mark.parametrize("seed", SEEDS)
def test_the_last_thread_block_sees_what_the_others_left(kernels: Kernels, seed: int) -> None:
    total, parts, arrived = (torch.zeros(count, dtype=torch.int32) for count in (1, 64, 1))
    kernels.run("last_adds", total, parts, arrived, grid=64, seed=seed)
    assert (total.item(), arrived.item()) == (sum(range(64)), 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_thread_blocks_of_a_cluster_read_from_each_other(kernels: Kernels, seed: int) -> None:
    found = torch.zeros(4, dtype=torch.int32)
    kernels.run("neighbours", found, grid=4, seed=seed)
    assert found.tolist() == [11, 10, 13, 12]

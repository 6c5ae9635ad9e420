"""A row's bits are the same among any others and by every tile: on a GPU, through the kernel on a CPU, in torch."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import product

import pytest
import torch

from pagedchat.ops.products.invariant_linear import (
    _rows_at_a_time,
    invariant_linear,
    launch_plan,
    telling_product,
)
from pagedchat.ops.products.invariant_plan import MAX_PARTS, TILES, part_count, plan_invariant, plan_tile
from tests.ops.products.small_batch_case import DTYPES, allowed, error, normal
from tests.tools.emulator_case import needs_compiler
from tools.emulator.ops import kernels_on_cpu

SHARED_LIMIT = 227 << 10
SHAPES = [(64, 40), (264, 130), (896, 72), (1032, 48)]
"""Inner and outer widths: of one part, of chunks and tiles that are not full, of seven parts, of eight in which the
last is shorter."""
NUM_ROWS = [1, 2, 7, 8, 9, 16, 17, 33, 64, 65, 100, 130]
FEW_NUM_ROWS = [1, 9, 17, 33, 65]
"""A tile of each size, not full."""
EMULATED = [pytest.param(*shape, DTYPES[i % 2], "emulated", marks=needs_compiler) for i, shape in enumerate(SHAPES)]
ON_A_GPU = [pytest.param(*shape, dtype, "cuda", marks=pytest.mark.gpu) for shape, dtype in product(SHAPES, DTYPES)]
IN_TORCH = [(*shape, dtype, "cpu") for shape, dtype in product(SHAPES, DTYPES)]
NAMES = ("in_features", "out_features", "dtype", "where")


@contextmanager
def device_of(where: str) -> Iterator[str]:
    """`"emulated"`: the kernel on tensors of the CPU; `"cpu"`: torch."""
    with kernels_on_cpu(seed=1) if where == "emulated" else nullcontext():
        yield "cpu" if where == "emulated" else where


def random_product(
    in_features: int, out_features: int, dtype: torch.dtype, device: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows, a weight and a bias."""
    return (
        normal(max(NUM_ROWS), in_features, device=device, dtype=dtype),
        normal(out_features, in_features, device=device, dtype=dtype, scale=in_features**-0.5),
        normal(out_features, device=device, dtype=dtype),
    )


@pytest.mark.parametrize(NAMES, [*EMULATED, *IN_TORCH, *ON_A_GPU])
def test_agrees_with_the_definition(in_features: int, out_features: int, dtype: torch.dtype, where: str) -> None:
    with device_of(where) as device:
        rows, weight, bias = random_product(in_features, out_features, dtype, device)
        wanted = rows.cpu().double() @ weight.cpu().double().T
        assert error(invariant_linear(rows, weight), wanted) < allowed(dtype)
        assert error(invariant_linear(rows, weight, bias), wanted + bias.cpu().double()) < allowed(dtype)


@pytest.mark.parametrize(NAMES, [*EMULATED, *IN_TORCH, *ON_A_GPU])
def test_a_row_is_the_same_among_any_number_of_others(
    in_features: int, out_features: int, dtype: torch.dtype, where: str
) -> None:
    with device_of(where) as device:
        rows, weight, bias = random_product(in_features, out_features, dtype, device)
        among_all = invariant_linear(rows, weight, bias)
        for num_rows in FEW_NUM_ROWS if where == "emulated" else NUM_ROWS:
            assert torch.equal(invariant_linear(rows[-num_rows:], weight, bias), among_all[-num_rows:]), num_rows


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("in_features", "out_features"), [(896, 9728), (4864, 896), (2048, 8192), (8192, 2048)])
def test_widths_of_real_models(in_features: int, out_features: int, dtype: torch.dtype) -> None:
    rows = normal(1500, in_features, device="cuda", dtype=dtype)
    weight = normal(out_features, in_features, device="cuda", dtype=dtype, scale=in_features**-0.5)
    among_all = invariant_linear(rows, weight)
    assert error(among_all, (rows.double() @ weight.double().T).cpu()) < allowed(dtype)
    for num_rows in (1, 3, 8, 12, 30, 64, 65, 128, 256, 700):
        assert torch.equal(invariant_linear(rows[-num_rows:], weight, overlap=True), among_all[-num_rows:]), (
            num_rows
        )


@pytest.mark.parametrize(NAMES, [*EMULATED, *ON_A_GPU])
def test_every_tile_gives_the_same(in_features: int, out_features: int, dtype: torch.dtype, where: str) -> None:
    with device_of(where) as device:
        rows, weight, bias = random_product(in_features, out_features, dtype, device)
        results = []
        for tile in TILES:
            plan = plan_tile(tile, in_features, SHARED_LIMIT)
            assert plan is not None
            results.append(rows.new_full((len(rows), out_features), float("nan")))
            launch_plan(plan, results[-1], rows, weight, bias)
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float32], ids=str)
def test_torch_is_given_the_same_number_of_rows_each_time(dtype: torch.dtype) -> None:
    rows, weight, _ = random_product(896, 72, dtype, "cpu")
    alone = torch.cat([invariant_linear(row[None], weight) for row in rows])
    assert torch.equal(invariant_linear(rows, weight), alone)
    assert torch.equal(invariant_linear(rows.flip(0), weight).flip(0), alone)
    few, many = _rows_at_a_time(896, 72, dtype)
    assert many % few == 0


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float32], ids=str)
def test_what_is_tried_says_in_what_order_it_was_added_up(dtype: torch.dtype) -> None:
    """A library with tiles (AMX) adds up 16 rows otherwise than 64, which hardly a random sum of 16 bits tells."""
    telling, (rows, weight, _) = telling_product(64, 896, 72, dtype), random_product(896, 72, dtype, "cpu")
    assert _share_in_another_order(*telling) > 0.2
    assert dtype == torch.float32 or _share_in_another_order(rows, weight) < 0.01
    assert float((telling[0].float() @ telling[1].float().T).abs().max()) < 1e-3
    assert [tuple(each.shape) for each in telling_product(3, 7, 2, dtype)] == [(3, 7), (2, 7)]


def _share_in_another_order(rows: torch.Tensor, weight: torch.Tensor) -> float:
    """Of the numbers of a product those that are others where halves are added up, and where quarters are."""
    sums = []
    for size in (448, 224):
        places = range(0, 896, size)
        parts = [rows[:, at : at + size].float() @ weight[:, at : at + size].float().T for at in places]
        sums.append(sum(parts[1:], parts[0]).to(rows.dtype))
    return float((sums[0] != sums[1]).float().mean())


# --- plans ----------------------------------------------------------------------------------------------


def test_parts_are_of_several_chunks_and_none_is_empty() -> None:
    for in_features in range(8, 20000, 8):
        chunks, parts = -(-in_features // 32), part_count(in_features)
        each = -(-chunks // parts)
        assert 1 <= parts <= MAX_PARTS
        assert (parts - 1) * each < chunks
        assert parts == 1 or each >= 4
    assert part_count(896) == 7
    assert part_count(8192) == MAX_PARTS


@pytest.mark.parametrize("shared_limit", [64 << 10, 99 << 10, 163 << 10, 227 << 10])
def test_every_product_has_a_plan_that_fits_into_shared_memory(shared_limit: int) -> None:
    for in_features in (8, 64, 896, 4864, 16384):
        for out_features in (8, 896, 151936):
            for num_rows in (1, 8, 9, 16, 17, 32, 33, 64, 65, 300, 8192):
                plan = plan_invariant(in_features, out_features, num_rows, 132, shared_limit)
                assert plan.shared_bytes <= shared_limit
                assert plan.num_threads <= 1024
                assert plan.stages >= 2
                assert plan.parts == part_count(in_features)


def test_large_tiles_are_taken_where_there_are_enough_of_them() -> None:
    def rows_of_tile(out_features: int, num_rows: int) -> int:
        return plan_invariant(896, out_features, num_rows, 132, SHARED_LIMIT).tile.input_rows

    assert [rows_of_tile(9728, num_rows) for num_rows in (1, 8, 9, 17, 33, 1500)] == [8, 8, 16, 32, 64, 128]
    assert rows_of_tile(896, 300) == 64


# --- mistakes -------------------------------------------------------------------------------------------


def test_wrong_arguments_are_named() -> None:
    rows, weight = torch.zeros(2, 64), torch.zeros(32, 64)
    with pytest.raises(ValueError, match=r"weight has shape \[32, 64\], expected \[\*, 32\]"):
        invariant_linear(rows[:, :32], weight)
    with pytest.raises(ValueError, match=r"bias has shape \[16\], expected \[32\]"):
        invariant_linear(rows, weight, torch.zeros(16))
    with pytest.raises(ValueError, match=r"weight is torch.float16"):
        invariant_linear(rows, weight.half())


@needs_compiler
def test_a_kernel_that_is_missing_is_said() -> None:
    with kernels_on_cpu():
        with pytest.raises(ValueError, match="tensor cores do not multiply float32"):
            invariant_linear(torch.zeros(2, 64), torch.zeros(32, 64))
        half = torch.zeros(2, 12, dtype=torch.float16)
        with pytest.raises(ValueError, match="a width of 12 is no multiple of 8"):
            invariant_linear(half, half)

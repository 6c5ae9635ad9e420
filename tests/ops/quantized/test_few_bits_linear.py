"""Products with weights of few bits against float64: on a GPU, through the kernel on a CPU, in torch."""

from collections.abc import Iterator
from itertools import product

import pytest
import torch
from _pytest.mark.structures import ParameterSet

from pagedchat.ops.quantized import few_bits_plan
from pagedchat.ops.quantized.few_bits_linear import few_bits_linear, launch_plan
from pagedchat.ops.quantized.few_bits_plan import (
    FewBitsTile,
    chunk_of,
    cut_as,
    most_rows,
    plan_few_bits,
    rows_of_piece,
)
from pagedchat.ops.quantized.weight import QuantizedWeight
from tests.ops.products.small_batch_case import DTYPES, error, normal
from tests.ops.quantized.few_bits_case import FORMATS, WHERE, device_of, small_weights_like_large, weight_of
from tests.tools.emulator_case import needs_compiler
from tools.emulator.ops import kernels_on_cpu

SHARED_LIMIT = 227 << 10
SHAPES = [(128, 33), (640, 131), (896, 300)]
"""Inner and outer widths: rows of the weight that are no whole tile, chunks that are not full, an odd number."""
TILES = [FewBitsTile(*sizes) for sizes in ((False, 1, 1), (False, 2, 2), (False, 4, 1), (True, 1, 2), (True, 2, 1))]
ON_HOPPER = not torch.cuda.is_available() or torch.cuda.get_device_capability() == (9, 0)


def exact(rows: torch.Tensor, weight: QuantizedWeight) -> torch.Tensor:
    """In float64, on the CPU."""
    return (rows.double() @ weight.dequantized().double().T).cpu()


def allowed(rows: torch.Tensor, weight: QuantizedWeight) -> float:
    """Twice what torch is off by that multiplies by a weight of the rows' type."""
    plain = torch.nn.functional.linear(rows, weight.dequantized(rows.dtype))
    return 2 * error(plain, exact(rows, weight)) + 1e-4


def in_turns() -> Iterator[ParameterSet]:
    """All there are on a GPU; elsewhere shapes take turns with types."""
    for number, (form, shape, dtype) in enumerate(product(FORMATS, SHAPES, DTYPES)):
        for where in WHERE:
            place = where if isinstance(where, str) else str(where.values[0])
            if place == "cuda" or (number // 2 + number) % 2 == 0:
                marks = () if isinstance(where, str) else where.marks
                name = f"{form}-{shape[0]}-{shape[1]}-{dtype}-{place}"
                yield pytest.param(form, *shape, dtype, place, marks=marks, id=name)


@pytest.mark.parametrize(("form", "in_features", "out_features", "dtype", "where"), list(in_turns()))
def test_agrees_with_the_definition(
    form: str, in_features: int, out_features: int, dtype: torch.dtype, where: str
) -> None:
    with device_of(where) as device:
        weight = weight_of(*FORMATS[form], out_features, in_features, device)
        rows = normal(20, in_features, device=device, dtype=dtype)
        bias = normal(out_features, device=device, dtype=dtype)
        wanted, most = exact(rows, weight), allowed(rows, weight)
        assert error(few_bits_linear(rows, weight), wanted) < most
        assert error(few_bits_linear(rows, weight, bias), wanted + bias.cpu().double()) < most


@pytest.mark.parametrize("where", [WHERE[0], WHERE[-1]])
@pytest.mark.parametrize("form", ["int8", "int4"])
def test_a_row_is_the_same_among_any_others_of_its_launch(form: str, where: str) -> None:
    with device_of(where) as device:
        weight = weight_of(*FORMATS[form], 300, 896, device)
        rows = normal(64, 896, device=device, dtype=torch.bfloat16)
        among_all = few_bits_linear(rows, weight)
        turned = few_bits_linear(rows.roll(5, 0), weight).roll(-5, 0)
        others = rows * 3
        others[7] = rows[7]
        assert torch.equal(turned, among_all)
        assert torch.equal(few_bits_linear(others, weight)[7], among_all[7])
        few = few_bits_linear(rows[:4], weight)
        assert torch.equal(few_bits_linear(rows[2:3], weight), few[2:3])
        assert torch.equal(few_bits_linear(rows[:8], weight)[:4], few)


@pytest.mark.parametrize("where", [WHERE[0], WHERE[-1]])
@pytest.mark.parametrize(("num_rows", "kind"), [(1, "int4"), (20, "int8"), (64, "int4")])
def test_every_way_to_cut_it_gives_the_product(num_rows: int, kind: str, where: str) -> None:
    with device_of(where) as device:
        weight = weight_of(kind, 32, 300, 896, device)
        rows = normal(num_rows, 896, device=device, dtype=torch.float16)
        wanted, most = exact(rows, weight), allowed(rows, weight)
        for tile in TILES:
            plan = cut_as(tile, kind, 896, 300, num_rows, 6, SHARED_LIMIT)
            if plan is None or (tile.warpgroups and not ON_HOPPER):
                continue
            output = rows.new_full((num_rows, 300), float("nan"))
            launch_plan(plan, output, rows, weight, None)
            assert error(output, wanted) < most, tile


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize(("first", "out_features"), [(16, 304), (16, 300), (5, 304)])
def test_columns_of_a_wider_output(first: int, out_features: int, where: str) -> None:
    """In whole pieces of 16 bytes or not."""
    with device_of(where) as device:
        weight = weight_of("int8", 0, out_features, 128, device)
        rows = normal(20, 128, device=device, dtype=torch.float16)
        wider = rows.new_full((20, 336), float("nan"))
        few_bits_linear(rows, weight, out=wider[:, first : first + out_features])
        assert error(wider[:, first : first + out_features], exact(rows, weight)) < allowed(rows, weight)
        assert wider.isnan().sum() == 20 * (336 - out_features)


@pytest.mark.parametrize("where", WHERE)
def test_one_output(where: str) -> None:
    with device_of(where) as device:
        weight = weight_of("int8", 0, 1, 128, device)
        rows = normal(20, 128, device=device, dtype=torch.float16)
        assert error(few_bits_linear(rows, weight), exact(rows, weight)) < allowed(rows, weight)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("warpgroups", [False, True])
def test_more_rows_than_a_launch_takes_go_by_rounds(warpgroups: bool, where: str) -> None:
    with device_of(where) as device, small_weights_like_large(warpgroups=warpgroups and ON_HOPPER, most_rows=150):
        weight = weight_of("int8", 0, 70, 128, device)
        rows = normal(150, 128, device=device, dtype=torch.float16)
        together = few_bits_linear(rows, weight)
        assert error(together, exact(rows, weight)) < allowed(rows, weight)
        if where != "cpu":
            assert torch.equal(together[64:128], few_bits_linear(rows[64:128], weight))


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_many_rows_go_by_a_library_that_gets_some_rows_of_the_weight_at_a_time(
    dtype: torch.dtype, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_bits_plan, "_PIECE_BYTES", 2 * 128 * 30)
    with device_of(where) as device:
        weight = weight_of("int4", 32, 70, 128, device)
        rows = normal(100, 128, device=device, dtype=dtype)
        bias = normal(70, device=device, dtype=dtype)
        wanted, most = exact(rows, weight), allowed(rows, weight)
        assert error(few_bits_linear(rows, weight), wanted) < most
        assert error(few_bits_linear(rows, weight, bias), wanted + bias.cpu().double()) < most


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("in_features", "out_features"), [(896, 9728), (4864, 896), (4096, 4096), (4096, 28672)])
@pytest.mark.parametrize("form", FORMATS)
def test_widths_of_real_models(form: str, in_features: int, out_features: int, dtype: torch.dtype) -> None:
    weight = weight_of(*FORMATS[form], out_features, in_features, "cuda")
    rows = normal(130, in_features, device="cuda", dtype=dtype)
    for num_rows in (1, 16, 64, 128, 130):
        part = rows[:num_rows]
        results = [few_bits_linear(part, weight, overlap=overlap) for overlap in (False, True, True, True)]
        assert error(results[0], exact(part, weight)) < allowed(part, weight), num_rows
        assert all(torch.equal(result, results[0]) for result in results), num_rows


# --- plans ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shared_limit", "warpgroups"), [(99 << 10, False), (163 << 10, False), (227 << 10, False), (227 << 10, True)]
)
@pytest.mark.parametrize("kind", ["int8", "fp8", "int4"])
def test_every_product_has_a_plan_that_fits_into_shared_memory(
    kind: str, shared_limit: int, warpgroups: bool
) -> None:
    for in_features in (32, 896, 4864, 14336):
        for out_features in (1, 896, 28672, 128256):
            for num_rows in range(1, 65):
                sizes = in_features, out_features, num_rows, 132, shared_limit
                plan = plan_few_bits(kind, *sizes, warpgroups=warpgroups)
                assert plan is not None
                assert num_rows <= plan.tokens < num_rows + (16 if plan.warpgroups else 8)
                assert plan.per_multiprocessor * (plan.shared_bytes + 1024) <= shared_limit + 1024
                tiles = -(-out_features // (64 * plan.row_tiles))
                assert 1 <= plan.num_blocks <= tiles * -(-in_features // chunk_of(kind))


@pytest.mark.parametrize(
    ("kind", "sizes", "wanted"),
    [
        ("int8", (4096, 28672, 8), FewBitsTile(False, 2, 2)),
        ("int4", (4096, 28672, 8), FewBitsTile(False, 4, 2)),
        ("int4", (4096, 28672, 16), FewBitsTile(False, 2, 2)),
        ("int8", (4096, 28672, 32), FewBitsTile(False, 2, 2)),
        ("int4", (4096, 28672, 32), FewBitsTile(True, 2, 1)),
        ("int8", (4096, 28672, 33), FewBitsTile(True, 2, 1)),
        ("int8", (4096, 4096, 8), FewBitsTile(False, 2, 1)),
        ("int4", (4096, 4096, 64), FewBitsTile(False, 2, 1)),
    ],
)
def test_what_was_fastest_is_taken(kind: str, sizes: tuple[int, int, int], wanted: FewBitsTile) -> None:
    plan = plan_few_bits(kind, *sizes, 132, SHARED_LIMIT, warpgroups=True)
    assert plan is not None
    found = FewBitsTile(plan.warpgroups, plan.row_tiles, plan.per_multiprocessor)
    assert found == wanted
    without = plan_few_bits(kind, *sizes, 132, SHARED_LIMIT, warpgroups=False)
    assert without is not None
    assert not without.warpgroups


def test_large_weights_are_read_twice_rather_than_widened() -> None:
    assert [most_rows(4096, width, 132) for width in (4096, 6144, 28672)] == [64, 128, 128]
    assert rows_of_piece(4096, 4096) == 4096
    assert rows_of_piece(4096, 128256) == 32064


# --- mistakes -------------------------------------------------------------------------------------------


def test_wrong_arguments_are_named() -> None:
    weight = weight_of("int8", 0, 70, 128, "cpu")
    with pytest.raises(ValueError, match=r"rows has shape \[2, 64\], expected \[\*, 128\]"):
        few_bits_linear(torch.zeros(2, 64), weight)
    with pytest.raises(ValueError, match=r"bias has shape \[16\], expected \[70\]"):
        few_bits_linear(torch.zeros(2, 128), weight, torch.zeros(16))
    with pytest.raises(ValueError, match=r"bias is torch.float16"):
        few_bits_linear(torch.zeros(2, 128), weight, torch.zeros(70).half())


@needs_compiler
def test_a_kernel_that_is_missing_is_said() -> None:
    with kernels_on_cpu():
        with pytest.raises(ValueError, match="tensor cores do not multiply float32"):
            few_bits_linear(torch.zeros(2, 128), weight_of("int8", 0, 7, 128, "cpu"))
        half = torch.zeros(2, 24, dtype=torch.float16)
        with pytest.raises(ValueError, match="rows of 24 bytes are no multiple of 16"):
            few_bits_linear(half, weight_of("int8", 0, 7, 24, "cpu"))
        half = torch.zeros(2, 96, dtype=torch.float16)
        with pytest.raises(ValueError, match="groups of 24 are no multiple of 16"):
            few_bits_linear(half, weight_of("int8", 24, 7, 96, "cpu"))

import pytest
import torch

from pagedchat.ops.common.choices import Activation
from pagedchat.ops.products import streamed_plan
from pagedchat.ops.products.small_batch_linear import small_batch_linear
from tests.ops.paged_case import DEVICES
from tests.ops.products.few_bits_case import FORMS, exact_weight, in_form
from tests.ops.products.small_batch_case import (
    DTYPES,
    NORMS,
    WIDTHS,
    allowed,
    error,
    exact_activation,
    exact_norm,
    make_norm,
    normal,
)
from tests.tools.emulator_case import needs_compiler
from tools.emulator.ops import kernels_on_cpu

NUM_TOKENS = [1, 3, 8, 9, 17, 32]
VARIATIONS: list[tuple[Activation, bool, bool, bool]] = [
    # activation, paired, bias, residual
    ("none", False, True, True),
    ("relu", False, True, False),
    ("silu", True, False, False),
    ("none", False, False, False),
    ("gelu", False, True, True),
    ("gelu_tanh", True, False, False),
    ("relu2", False, False, False),
]
OUT_FEATURES = 160


def check(
    num_tokens: int,
    width: int,
    norm_kind: str | None,
    variation: tuple[Activation, bool, bool, bool],
    dtype: torch.dtype,
    device: str,
    out_features: int = OUT_FEATURES,
    form: str | None = None,
) -> None:
    activation, paired, has_bias, has_residual = variation
    num_rows = out_features * (2 if paired else 1)
    rows = normal(num_tokens, width, device=device, dtype=dtype)
    weight = in_form(normal(num_rows, width, device=device, dtype=dtype, scale=width**-0.5), form)
    bias = normal(num_rows, device=device, dtype=dtype) if has_bias else None
    residual = normal(num_tokens, out_features, device=device, dtype=dtype) if has_residual else None
    norm = make_norm(norm_kind, width, device, dtype)
    product = exact_norm(norm, rows.cpu().double()) @ exact_weight(weight).T
    if bias is not None:
        product = product + bias.cpu().double()
    gate, value = product.chunk(2, dim=1) if paired else (product, None)
    wanted = exact_activation(activation, gate)
    wanted = wanted if value is None else wanted * value
    if residual is not None:
        wanted = 0.6 * wanted + residual.cpu().double()
    got = small_batch_linear(
        rows,
        weight,
        bias=bias,
        residual=residual,
        residual_scale=0.6,
        norm=norm,
        activation=activation,
        paired=paired,
        output=residual,
    )
    assert error(got, wanted) < allowed(dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("norm_kind", NORMS)
@pytest.mark.parametrize("variation", VARIATIONS, ids=str)
def test_agrees_with_the_definition(
    variation: tuple[Activation, bool, bool, bool], norm_kind: str | None, dtype: torch.dtype, device: str
) -> None:
    widths = WIDTHS if device == "cuda" else WIDTHS[:1]
    for width in widths:
        for num_tokens in NUM_TOKENS if width < 4096 else [2, 12]:
            check(num_tokens, width, norm_kind, variation, dtype, device)


@pytest.mark.gpu
@pytest.mark.parametrize("width", [576, 896, 960, 1536, 4864, 8960, 14336, 100])
def test_widths_of_other_models(width: int) -> None:
    for norm_kind in NORMS:
        check(5, width, norm_kind, VARIATIONS[0], torch.float16, "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("num_tokens", [1, 3, 8])
@pytest.mark.parametrize("variation", VARIATIONS, ids=str)
def test_large_weights_stream_through_shared_memory(
    variation: tuple[Activation, bool, bool, bool], num_tokens: int, dtype: torch.dtype
) -> None:
    for width, norm_kind in [(2048, "rms"), (2048, "layer"), (2048, None), (3072, None), (8192, None)]:
        check(num_tokens, width, norm_kind, variation, dtype, "cuda", out_features=2080)


@pytest.mark.gpu
@pytest.mark.parametrize("num_tokens", [1, 3, 8])
@pytest.mark.parametrize("width", [896, 960, 1000, 1536, 2560, 4096, 4864, 8960, 11008])
def test_rows_of_any_length_stream(width: int, num_tokens: int) -> None:
    for norm_kind in ("rms", "layer", None):
        check(num_tokens, width, norm_kind, VARIATIONS[0], torch.float16, "cuda", out_features=1000)
    check(num_tokens, width, "rms", VARIATIONS[2], torch.bfloat16, "cuda", out_features=904)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("variation", VARIATIONS[:3], ids=str)
def test_weights_of_few_bits(
    variation: tuple[Activation, bool, bool, bool], form: str, dtype: torch.dtype, device: str
) -> None:
    for num_tokens in (1, 3):  # whose input lies in shared memory, and in registers
        check(num_tokens, 256, "rms", variation, dtype, device, form=form)
    check(2, 512, "layer", VARIATIONS[0], dtype, device, form=form)
    if device == "cuda":
        for num_tokens in (1, 2, 3, 8):
            check(num_tokens, 4096, "rms", variation, dtype, device, out_features=8200, form=form)
        check(5, 2048, "layer", VARIATIONS[0], dtype, device, out_features=2080, form=form)


@needs_compiler
@pytest.mark.parametrize("num_tokens", [1, 5])
@pytest.mark.parametrize("form", ["int4, 64", "int4, 128, minimums"])
def test_rows_of_few_bits_in_pairs_of_units_and_several_stages(form: str, num_tokens: int) -> None:
    # Of a warp that is late, or a copy, only some orders tell; an odd number of units for some thread blocks.
    for seed in (2, 3, 4, 9):
        with kernels_on_cpu(seed=seed, num_multiprocessors=3) as emulated:
            check(num_tokens, 5120, None, VARIATIONS[3], torch.float16, "cpu", out_features=200, form=form)
        assert emulated.launched == {"streamed_linear"}


@needs_compiler
@pytest.mark.parametrize("num_tokens", [1, 5])
def test_rows_of_16_bits_of_which_some_stages_are_on_their_way(
    monkeypatch: pytest.MonkeyPatch, num_tokens: int
) -> None:
    monkeypatch.setattr(streamed_plan, "_LARGE", 200)
    streamed_plan.plan_stream.cache_clear()
    try:
        sizes = {"normed": False, "num_multiprocessors": 3, "shared_limit": 227 << 10}
        plan = streamed_plan.plan_stream(5120, 200, num_tokens, **sizes)
        assert plan is not None
        assert plan.constants["IN_FLIGHT"] == 3 < plan.stages
        for seed in (2, 9):
            with kernels_on_cpu(seed=seed, num_multiprocessors=3) as emulated:
                check(num_tokens, 5120, None, VARIATIONS[3], torch.float16, "cpu", out_features=200)
            assert emulated.launched == {"streamed_linear"}
    finally:
        streamed_plan.plan_stream.cache_clear()


@pytest.mark.gpu
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("width", [768, 896, 1536, 4864, 11008, 14336])
def test_rows_of_few_bits_of_any_length(width: int, form: str) -> None:
    for num_tokens in (1, 2, 5, 8, 11):
        check(num_tokens, width, "rms", VARIATIONS[2], torch.float16, "cuda", out_features=4104, form=form)


@pytest.mark.gpu
def test_no_copy_takes_the_place_of_weights_that_are_still_to_be_read() -> None:
    # The loads of a long input, which come late, stand before those of the weights.
    rows = normal(8, 14336, device="cuda", dtype=torch.float16)
    weights = [normal(4096, 14336, device="cuda", dtype=torch.float16, scale=0.01, seed=i) for i in range(4)]
    wanted = [small_batch_linear(rows, weight) for weight in weights]
    for weight, first in zip(weights, wanted, strict=True):
        exact = rows.double() @ weight.double().T
        assert error(first, exact.cpu()) < allowed(torch.float16)
    for _ in range(50):
        for weight, first in zip(weights, wanted, strict=True):
            assert torch.equal(small_batch_linear(rows, weight, overlap=True), first)


@pytest.mark.gpu
@pytest.mark.parametrize("overlap", [False, True])
def test_streamed_weights_in_a_chain(overlap: bool) -> None:
    def step(rows: torch.Tensor, overlap: bool) -> torch.Tensor:
        for up, down in weights:
            middle = small_batch_linear(rows, up, norm=norm, activation="silu", paired=True, overlap=overlap)
            rows = small_batch_linear(middle, down, residual=rows, overlap=overlap)
        return rows

    norm = make_norm("rms", 2048, "cuda", torch.float16)
    weights = [
        (
            normal(2 * 8192, 2048, device="cuda", dtype=torch.float16, scale=0.03, seed=i),
            normal(2048, 8192, device="cuda", dtype=torch.float16, scale=0.01, seed=i),
        )
        for i in range(3)
    ]
    rows = normal(2, 2048, device="cuda", dtype=torch.float16)
    wanted = step(rows, False)
    for _ in range(20):
        assert torch.equal(step(rows, overlap), wanted)


@pytest.mark.gpu
def test_a_chain_that_overlaps_gives_what_one_after_the_other_gives() -> None:
    weights = [normal(768, 768, device="cuda", dtype=torch.float16, scale=0.03, seed=i) for i in range(8)]
    results = []
    for overlap in (False, True):
        rows = normal(3, 768, device="cuda", dtype=torch.float16)
        for _ in range(20):
            for weight in weights:
                rows = small_batch_linear(
                    rows, weight, norm=make_norm("rms", 768, "cuda", torch.float16), overlap=overlap
                )
        results.append(rows)
    assert torch.equal(*results)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("form", [None, "int8", "int4, 32, minimums"])
@pytest.mark.parametrize("num_tokens", [1, 3])
def test_columns_of_a_wider_output(num_tokens: int, form: str | None, device: str) -> None:
    rows = normal(num_tokens, 2048, device=device, dtype=torch.float16)
    weight = in_form(normal(64, 2048, device=device, dtype=torch.float16, scale=0.02), form)
    wider = rows.new_full((num_tokens, 128), float("nan"))
    small_batch_linear(rows, weight, output=wider[:, 16:80])
    assert error(wider[:, 16:80], rows.cpu().double() @ exact_weight(weight).T) < allowed(torch.float16)
    assert wider.isnan().sum() == num_tokens * 64


def test_wrong_arguments_are_named() -> None:
    rows, weight = torch.zeros(2, 64), torch.zeros(32, 64)
    with pytest.raises(ValueError, match=r"weight has shape \[32, 64\], expected \[\*, 32\]"):
        small_batch_linear(rows[:, :32].contiguous(), weight)
    with pytest.raises(ValueError, match=r"bias has shape \[16\], expected \[32\]"):
        small_batch_linear(rows, weight, bias=torch.zeros(16))
    with pytest.raises(ValueError, match="without a bias"):
        small_batch_linear(rows, weight, bias=torch.zeros(16), paired=True)
    with pytest.raises(ValueError, match=r"residual has shape \[3, 32\], expected \[2, 32\]"):
        small_batch_linear(rows, weight, residual=torch.zeros(3, 32))
    with pytest.raises(ValueError, match="input_rows is not contiguous"):
        small_batch_linear(torch.zeros(64, 2).T, weight)
    with pytest.raises(ValueError, match="output is not contiguous, nor whole columns of a wider one"):
        small_batch_linear(rows, weight, output=torch.zeros(32, 2).T)
    with pytest.raises(ValueError, match=r"output is not contiguous$"):
        small_batch_linear(rows, weight, residual=torch.zeros(2, 32), output=torch.zeros(2, 64)[:, :32])

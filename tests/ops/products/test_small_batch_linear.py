import pytest
import torch

from pagedchat.ops.products.small_batch_linear import Activation, small_batch_linear
from pagedchat.ops.products.small_batch_plan import can_multiply
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import DTYPES, WIDTHS, allowed, error, exact_norm, make_norm, normal

NUM_TOKENS = [1, 3, 8, 9, 17, 32]
NORMS = [None, "layer", "rms"]
VARIATIONS: list[tuple[Activation, bool, bool, bool]] = [
    # activation, paired, bias, residual
    ("none", False, True, True),
    ("relu", False, True, False),
    ("silu", True, False, False),
    ("none", False, False, False),
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
) -> None:
    activation, paired, has_bias, has_residual = variation
    num_rows = out_features * (2 if paired else 1)
    rows = normal(num_tokens, width, device=device, dtype=dtype)
    weight = normal(num_rows, width, device=device, dtype=dtype, scale=width**-0.5)
    bias = normal(num_rows, device=device, dtype=dtype) if has_bias else None
    residual = normal(num_tokens, out_features, device=device, dtype=dtype) if has_residual else None
    norm = make_norm(norm_kind, width, device, dtype)
    product = exact_norm(norm, rows.cpu().double()) @ weight.cpu().double().T
    if bias is not None:
        product = product + bias.cpu().double()
    gate, value = product.chunk(2, dim=1) if paired else (product, None)
    wanted = {"none": gate, "relu": gate.relu(), "silu": gate * gate.sigmoid()}[activation]
    wanted = wanted if value is None else wanted * value
    if residual is not None:
        wanted = wanted + residual.cpu().double()
    got = small_batch_linear(
        rows, weight, bias=bias, residual=residual, norm=norm, activation=activation, paired=paired, output=residual
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


def test_what_kernels_multiply() -> None:
    assert can_multiply(768, 2304, 32, normed=True)
    assert can_multiply(8192, 4096, 8)
    assert not can_multiply(8192, 4096, 8, normed=True)
    assert not can_multiply(768, 100, 1)
    assert can_multiply(768, 104, 1, paired=True)
    assert not can_multiply(100, 768, 1)
    assert not can_multiply(768, 768, 33)


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

import pytest
import torch

from pagedchat.ops.cache.layout import key_cache_shape, to_token_major, value_cache_shape
from pagedchat.ops.products.qkv_to_cache import qkv_to_cache
from tests.ops.paged_case import DEVICES
from tests.ops.products.few_bits_case import FORMS, exact_weight, in_form
from tests.ops.products.small_batch_case import DTYPES, WIDTHS, allowed, error, exact_norm, make_norm, normal

HEADS = [(12, 12, 64), (4, 2, 80), (8, 2, 128), (2, 1, 256)]  # num_heads, num_kv_heads, head_size
NUM_BLOCKS = 64


def exact_rotation(heads: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    pairs = angles.shape[-1]
    first, second, rest = heads.split([pairs, pairs, heads.shape[-1] - 2 * pairs], dim=-1)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)


def check(
    num_tokens: int,
    width: int,
    heads: tuple[int, int, int],
    norm_kind: str | None,
    rotary: bool,
    block_size: int,
    dtype: torch.dtype,
    device: str,
    *,
    share: float = 1.0,
    form: str | None = None,
    values_form: str | None = None,
) -> None:
    num_heads, num_kv_heads, head_size = heads
    rows = normal(num_tokens, width, device=device, dtype=dtype)
    num_rows = (num_heads + 2 * num_kv_heads) * head_size
    whole, bias = (
        normal(num_rows, width, device=device, dtype=dtype, scale=width**-0.5),
        normal(num_rows, device=device, dtype=dtype),
    )
    border = num_rows if values_form is None else (num_heads + num_kv_heads) * head_size
    weight = in_form(whole[:border], form)
    values = None if values_form is None else in_form(whole[border:], values_form)
    norm = make_norm(norm_kind, width, device, dtype)
    positions = [(i * 37) % (2 * block_size) for i in range(num_tokens)]
    if num_tokens > 2:
        positions[1] = -1
    tables = torch.randperm(NUM_BLOCKS)[: 2 * num_tokens].view(num_tokens, 2).int()
    key_shape = key_cache_shape(NUM_BLOCKS, num_kv_heads, head_size, block_size, dtype)
    key_cache = torch.zeros(key_shape, dtype=dtype, device=device)
    value_shape = value_cache_shape(NUM_BLOCKS, num_kv_heads, head_size, block_size)
    value_cache = torch.zeros(value_shape, dtype=dtype, device=device)
    angles = (
        torch.arange(2 * block_size).double()[:, None]
        * torch.linspace(1, 0.01, round(share * head_size) // 2).double()
    )
    turns = torch.stack((angles.cos(), angles.sin()), dim=-1).float().to(device)
    query = torch.full((num_tokens, num_heads, head_size), float("nan"), dtype=dtype, device=device)
    qkv_to_cache(
        query,
        key_cache,
        value_cache,
        rows,
        weight,
        tables.to(device),
        torch.tensor(positions, dtype=torch.int32, device=device),
        bias=bias[:border],
        values=values,
        values_bias=None if values is None else bias[border:],
        norm=norm,
        rotations=turns if rotary else None,
    )
    exact = torch.cat([exact_weight(part) for part in (weight, values) if part is not None])
    product = exact_norm(norm, rows.cpu().double()) @ exact.T + bias.cpu().double()
    wanted = product.view(num_tokens, -1, head_size)
    if rotary:
        turned = exact_rotation(wanted[:, : num_heads + num_kv_heads], angles[[max(p, 0) for p in positions]])
        wanted = torch.cat((turned, wanted[:, num_heads + num_kv_heads :]), dim=1)
    live = [i for i, position in enumerate(positions) if position >= 0]
    assert error(query[live], wanted[live, :num_heads]) < allowed(dtype)
    key, value = (cache.cpu() for cache in to_token_major(key_cache, value_cache))
    places = [(int(tables[i, positions[i] // block_size]), positions[i] % block_size) for i in live]
    for cache, first in ((key, num_heads), (value, num_heads + num_kv_heads)):
        got = torch.stack([cache[place] for place in places])
        assert error(got, wanted[live, first : first + num_kv_heads]) < allowed(dtype)
        for place in places:
            cache[place] = 0
        assert not bool(cache.any())  # nothing of the padding, and nothing elsewhere


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_agrees_with_the_definition(
    heads: tuple[int, int, int], rotary: bool, dtype: torch.dtype, device: str
) -> None:
    check(5, 768, heads, "rms" if rotary else "layer", rotary, 16, dtype, device)
    check(1, 768, heads, None, rotary, 8, dtype, device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("heads", "share"), [((4, 2, 64), 0.25), ((4, 4, 80), 0.4), ((4, 4, 80), 0.25)], ids=str)
def test_a_part_of_each_head_is_turned(
    heads: tuple[int, int, int], share: float, dtype: torch.dtype, device: str
) -> None:
    """20 of 80 elements are turned behind the product."""
    for norm_kind in ("layer", "offset rms"):
        check(5, 768, heads, norm_kind, True, 16, dtype, device, share=share)
        if device == "cuda":
            check(3, 2048, heads, norm_kind, True, 8, dtype, device, share=share)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("heads", [(28, 2, 64), (32, 8, 64), (14, 4, 96)], ids=str)
def test_large_weights_stream_through_shared_memory(
    heads: tuple[int, int, int], rotary: bool, dtype: torch.dtype
) -> None:
    for num_tokens in (1, 3, 8):
        for norm_kind in ("rms", "layer", None):
            check(num_tokens, 2048, heads, norm_kind, rotary, 16, dtype, "cuda")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rotary", [False, True])
def test_weights_of_few_bits(rotary: bool, form: str, device: str) -> None:
    for dtype in DTYPES:
        check(3, 256, (4, 2, 64), "rms", rotary, 16, dtype, device, form=form)
        if device == "cuda":
            check(8, 2048, (32, 8, 64), "rms", rotary, 16, dtype, device, form=form)
            check(1, 896, (14, 2, 64), "layer", rotary, 16, dtype, device, form=form, share=0.5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("form", "values_form"), [("int4, 32, minimums", "int8"), ("int8", "int4, 32, minimums")])
@pytest.mark.parametrize("rotary", [False, True])
def test_values_of_another_form(rotary: bool, form: str, values_form: str, device: str) -> None:
    more = {"form": form, "values_form": values_form}
    for dtype in DTYPES:
        check(3, 256, (4, 2, 64), "rms", rotary, 16, dtype, device, **more)
        if device == "cuda":
            check(8, 2048, (32, 8, 64), "rms", rotary, 16, dtype, device, **more)
            check(1, 896, (14, 2, 64), "layer", rotary, 16, dtype, device, **more, share=0.5)
            check(2, 8192, (32, 8, 128), "rms", rotary, 16, dtype, device, **more)


@pytest.mark.gpu
@pytest.mark.parametrize("width", WIDTHS)
def test_widths_and_numbers_of_tokens(width: int) -> None:
    for num_tokens in (1, 8, 11, 24, 32):
        check(num_tokens, width, (4, 2, 64), "layer", False, 32, torch.float16, "cuda")
        check(num_tokens, width, (4, 2, 64), "rms", True, 16, torch.float16, "cuda")


def test_wrong_arguments_are_named() -> None:
    key, value = torch.zeros(4, 2, 16, 8, 4), torch.zeros(4, 2, 64, 8)
    query, rows, weight = torch.zeros(1, 2, 64), torch.zeros(1, 32), torch.zeros(6 * 64, 32)
    tables, positions = torch.zeros(1, 2, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"weight has shape \[320, 32\], expected \[384, 32\]"):
        qkv_to_cache(query, key, value, rows, weight[:320], tables, positions)
    with pytest.raises(ValueError, match=r"values has shape \[64, 32\], expected \[128, 32\]"):
        qkv_to_cache(query, key, value, rows, weight[:256], tables, positions, values=weight[:64])
    with pytest.raises(ValueError, match=r"values_bias has shape \[3\], expected \[128\]"):
        qkv_to_cache(
            query,
            key,
            value,
            rows,
            weight[:256],
            tables,
            positions,
            values=weight[256:],
            values_bias=torch.zeros(3),
        )
    with pytest.raises(ValueError, match=r"positions is torch\.int64, expected torch\.int32"):
        qkv_to_cache(query, key, value, rows, weight, tables, positions.long())
    with pytest.raises(ValueError, match=r"rotations has shape \[4, 64\], expected \[\*, \*, 2\]"):
        qkv_to_cache(query, key, value, rows, weight, tables, positions, rotations=torch.zeros(4, 64))

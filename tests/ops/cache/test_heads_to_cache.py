from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from pagedchat.layers.norms import Norm as NormModule
from pagedchat.layers.norms import NormConfig
from pagedchat.ops.cache import heads_to_cache as op_module
from pagedchat.ops.cache.heads_to_cache import heads_to_cache
from pagedchat.ops.cache.layout import key_cache_shape, to_token_major, value_cache_shape
from pagedchat.ops.cache.reshape_and_cache import reshape_and_cache
from pagedchat.ops.common.norm import HeadNorms, Norm
from pagedchat.ops.sampling.decode_state import slots_of
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import NORMS, error, exact_norm, make_norm, normal
from tools.emulator.ops import kernels_on_cpu

HEADS = [(12, 12, 64), (4, 2, 80), (3, 1, 96), (5, 5, 112), (40, 8, 128), (2, 1, 256)]
"""Query heads, KV heads, head size."""
NUM_BLOCKS = 160
DTYPES = [torch.float16, torch.bfloat16, torch.float32]


def turned(heads: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    pairs = angles.shape[-1]
    first, second, rest = heads.split([pairs, pairs, heads.shape[-1] - 2 * pairs], dim=-1)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)


def make_norms(
    kind: str, sizes: tuple[int, int, int], dtype: torch.dtype, device: str, of: str = "rms"
) -> HeadNorms | None:
    if kind == "none":
        return None
    norms = []
    for count, eps in zip(sizes[:2], (0.5, 1e-6), strict=True):
        norm = make_norm(of, sizes[2] * (1 if kind == "each head" else count), device, dtype)
        assert norm is not None
        if kind == "by weights of its own":
            bias = None if norm.bias is None else norm.bias.view(count, -1)
            norm = replace(norm, weight=norm.weight.view(count, -1), bias=bias)
        norms.append(replace(norm, eps=eps))
    return HeadNorms(*norms)


def normed(norms: HeadNorms, heads: torch.Tensor, num_heads: int, num_kv_heads: int) -> torch.Tensor:
    """Of query heads and key heads, in float64."""
    parts = []
    for norm, rows in zip((norms.query, norms.key), heads.split([num_heads, num_kv_heads], dim=1), strict=True):
        width = norm.weight.shape[-1]
        parts.append(exact_norm(norm, rows.reshape(len(rows), -1, width)).reshape(rows.shape))
    return torch.cat(parts, dim=1)


def check(
    num_tokens: int,
    sizes: tuple[int, int, int],
    kind: str,
    rotary: bool,
    block_size: int,
    dtype: torch.dtype,
    device: str,
    *,
    of: str = "rms",
    share: float = 1.0,
) -> None:
    num_heads, num_kv_heads, head_size = sizes
    heads = normal(num_tokens, num_heads + 2 * num_kv_heads, head_size, device=device, dtype=dtype)
    before = heads.cpu().double()
    positions = [(i * 37) % (2 * block_size) if i % 7 != 1 else -1 for i in range(num_tokens)]
    tables = torch.randperm(NUM_BLOCKS)[: 2 * num_tokens].view(num_tokens, 2).int()
    key_cache = torch.zeros(key_cache_shape(NUM_BLOCKS, num_kv_heads, head_size, block_size, dtype), dtype=dtype)
    value_cache = torch.zeros(value_cache_shape(NUM_BLOCKS, num_kv_heads, head_size, block_size), dtype=dtype)
    key_cache, value_cache = key_cache.to(device), value_cache.to(device)
    angles = (
        torch.arange(2 * block_size).double()[:, None]
        * torch.linspace(1, 0.01, round(head_size * share) // 2).double()
    )
    turns = torch.stack((angles.cos(), angles.sin()), dim=-1).float().to(device) if rotary else None
    norms = make_norms(kind, sizes, dtype, device, of)
    query = heads_to_cache(
        heads,
        key_cache,
        value_cache,
        tables.to(device),
        torch.tensor(positions, dtype=torch.int32, device=device),
        norms=norms,
        rotations=turns,
    )
    assert query.shape == (num_tokens, num_heads, head_size)
    assert query.data_ptr() == heads.data_ptr()
    live = [i for i, position in enumerate(positions) if position >= 0]
    if norms is not None:
        before[:, :-num_kv_heads] = normed(norms, before[:, :-num_kv_heads], num_heads, num_kv_heads)
    if rotary:
        of_rows = angles[[max(position, 0) for position in positions]]
        before[:, :-num_kv_heads] = turned(before[:, :-num_kv_heads], of_rows)
    allowed = (rotary + (norms is not None)) * torch.finfo(dtype).eps
    assert error(query[live], before[live, :num_heads]) <= allowed
    places = [(int(tables[i, positions[i] // block_size]), positions[i] % block_size) for i in live]
    caches = to_token_major(key_cache, value_cache)
    for cache, first in zip((c.cpu() for c in caches), (num_heads, num_heads + num_kv_heads), strict=True):
        got = torch.stack([cache[place] for place in places])
        assert error(got, before[live, first : first + num_kv_heads]) <= allowed
        for place in places:
            cache[place] = 0
        assert not bool(cache.any())  # nothing of the padding, and nothing elsewhere


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("norms", ["none", "each head", "all heads"])
@pytest.mark.parametrize("sizes", HEADS, ids=str)
def test_heads_go_to_their_slots(
    sizes: tuple[int, int, int],
    norms: str,
    rotary: bool,
    dtype: torch.dtype,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check(5, sizes, norms, rotary, 16, dtype, device)
    check(70, sizes, norms, rotary, 8, dtype, device)
    monkeypatch.setattr(op_module, "_MANY_TOKENS", 0)
    check(71, sizes, norms, rotary, 16, dtype, device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("of", NORMS[1:])
@pytest.mark.parametrize("norms", ["each head", "all heads", "by weights of its own"])
def test_heads_are_normed_in_every_way(norms: str, of: str, dtype: torch.dtype, device: str) -> None:
    check(5, (4, 2, 80), norms, True, 16, dtype, device, of=of)
    check(5, (3, 1, 64), norms, True, 8, dtype, device, of=of, share=0.5)
    check(5, (3, 1, 256), norms, False, 8, dtype, device, of=of)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("sizes", "share"), [((12, 12, 64), 0.25), ((4, 4, 80), 0.4), ((4, 4, 80), 0.25), ((6, 2, 96), 0.25)]
)
def test_a_part_of_each_head_is_turned(
    sizes: tuple[int, int, int], share: float, dtype: torch.dtype, device: str
) -> None:
    """20 of 80 elements and 24 of 96 are no whole pieces."""
    check(5, sizes, "none", True, 16, dtype, device, share=share)
    check(70, sizes, "each head", True, 8, dtype, device, of="layer", share=share)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_norms_round_where_the_modules_do(dtype: torch.dtype, device: str) -> None:
    sizes, norm = (3, 2, 64), NormModule(NormConfig(kind="rms", eps=1e-6), 64).to(device, dtype)
    norm.weight.copy_(1 + normal(64, device=device, dtype=dtype, scale=0.3))
    heads = normal(2, 7, 64, device=device, dtype=dtype)
    caches = [torch.zeros(4, 2, 64 // (16 // dtype.itemsize), 8, 16 // dtype.itemsize), torch.zeros(4, 2, 64, 8)]
    tables, positions = (torch.tensor(ids, dtype=torch.int32, device=device) for ids in ([[1], [3]], [0, 5]))
    wanted = norm(heads[:, :5])
    norms = HeadNorms(*[Norm("rms", norm.weight, None, norm.config.eps)] * 2)
    query = heads_to_cache(heads, *(c.to(device, dtype) for c in caches), tables, positions, norms=norms)
    assert query.shape == (2, sizes[0], 64)
    # Sums of squares may differ in their last bit, and with them a rounding here and there.
    assert float((query == wanted[:, :3]).float().mean()) > (0.2 if dtype == torch.float32 else 0.97)


def test_wrong_arguments_are_named() -> None:
    key, value = torch.zeros(4, 2, 16, 8, 4), torch.zeros(4, 2, 64, 8)  # of two query heads and two KV heads
    heads = torch.zeros(3, 6, 64)
    tables, positions = torch.zeros(3, 2, dtype=torch.int32), torch.zeros(3, dtype=torch.int32)
    with pytest.raises(ValueError, match="heads has 4 heads, expected more than 4"):
        heads_to_cache(heads[:, :4], key, value, tables, positions)
    with pytest.raises(ValueError, match="heads is not contiguous"):
        heads_to_cache(heads[:, :5], key, value, tables, positions)
    with pytest.raises(ValueError, match=r"positions is torch\.int64, expected torch\.int32"):
        heads_to_cache(heads, key, value, tables, positions.long())
    with pytest.raises(ValueError, match=r"rotations has shape \[4, 64\], expected \[\*, \*, 2\]"):
        heads_to_cache(heads, key, value, tables, positions, rotations=torch.zeros(4, 64))
    with pytest.raises(ValueError, match="rotations turns 66 elements, expected at most 64"):
        heads_to_cache(heads, key, value, tables, positions, rotations=torch.zeros(4, 33, 2))
    rms, wide = (Norm("rms", torch.ones(width), None, 1e-6) for width in (64, 128))
    layer = replace(rms, kind="layer")
    with pytest.raises(ValueError, match=r"norms\.key\.weight has shape \[128\], expected \[64\]"):
        heads_to_cache(heads, key, value, tables, positions, norms=HeadNorms(rms, wide))
    with pytest.raises(ValueError, match=r"norms\.key\.weight has shape \[64\], expected \[128\]"):
        heads_to_cache(heads, key, value, tables, positions, norms=HeadNorms(wide, rms))
    with pytest.raises(ValueError, match=r"norms\.key is a norm of kind 'rms' unlike norms\.query"):
        heads_to_cache(heads, key, value, tables, positions, norms=HeadNorms(layer, rms))


@pytest.mark.parametrize("device", ["emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_size", [8, 16])
@pytest.mark.parametrize("many_from", [0, 512])
def test_tokens_of_prompts_are_written_together(
    device: str, dtype: torch.dtype, block_size: int, many_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks that begin and end anywhere in a block, of one token too, between padding."""
    monkeypatch.setattr(op_module, "_MANY_TOKENS", many_from)
    chunks = [(3, 5), (16, 40), (0, 17), (8, 9), (15, 1), (0, 8), (7, 1)]
    positions, tables, ids = [-1], [[0] * 8], iter(torch.randperm(NUM_BLOCKS).tolist())
    for start, count in chunks:
        table = [next(ids) for _ in range(8)]
        positions += [*range(start, start + count), -1]
        tables += [table] * count + [[0] * 8]
    place = "cuda" if device == "cuda" else "cpu"
    places = [torch.tensor(each, dtype=torch.int32, device=place) for each in (tables, positions)]
    caches = []
    for by_kernel in (False, True):
        shapes = (
            key_cache_shape(NUM_BLOCKS, 2, 64, block_size, dtype),
            value_cache_shape(NUM_BLOCKS, 2, 64, block_size),
        )
        cache = [torch.zeros(shape, dtype=dtype, device=place) for shape in shapes]
        heads = normal(len(positions), 7, 64, device=place, dtype=dtype, seed=1)
        if by_kernel:
            with kernels_on_cpu(seed=2) if device == "emulated" else nullcontext():
                heads_to_cache(heads, *cache, *places)
        else:  # what the torch version leaves
            key, value = heads[:, 3:5], heads[:, 5:]
            reshape_and_cache(key, value, *cache, slots_of(*reversed(places), block_size))
        caches.append(cache)

    for expected, got in zip(*caches, strict=True):
        assert torch.equal(expected, got)
    assert sum(count for _, count in chunks) * 2 * 64 == int((caches[0][1] != 0).sum())

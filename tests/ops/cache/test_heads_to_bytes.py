"""Heads into a cache of bytes, normed and turned on the way: against float64, and the same by slot."""

import pytest
import torch

from pagedchat.ops.cache.byte_cache import LARGEST
from pagedchat.ops.cache.byte_kinds import CacheKind
from pagedchat.ops.cache.heads_to_cache import heads_to_cache, rotate_heads
from pagedchat.ops.cache.heads_to_slots import heads_to_slots
from pagedchat.ops.common.norm import HeadNorms, Norm
from tests.ops.byte_case import KINDS, as_bytes, empty_pages, whole_cache

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
CASES = [
    (64, 8, None, ""), (128, 16, 128, ""), (80, 16, 20, ""), (128, 16, 128, "head"), (96, 32, 32, "head"),
    (256, 16, 256, "each"), (64, 16, None, "head"), (64, 16, 64, "all"), (112, 8, 112, "layer"),
]  # fmt: skip
"""Head size, block size, elements that are turned, what is normed."""
NUM_HEADS, NUM_KV_HEADS, NUM_TOKENS = 6, 2, 37


def norms_of(kind: str, head_size: int, dtype: torch.dtype, device: str) -> HeadNorms | None:
    if not kind:
        return None
    made = []
    for seed, count in enumerate((NUM_HEADS, NUM_KV_HEADS)):
        size = {"head": (head_size,), "layer": (count, head_size), "each": (count, head_size)}
        shape = size.get(kind, (count * head_size,))
        generator = torch.Generator().manual_seed(seed)
        weight, bias = (1 + 0.3 * torch.randn(2, *shape, generator=generator)).to(dtype).to(device)
        how = "layer" if kind == "layer" else "rms"
        made.append(Norm(how, weight, bias if how == "layer" else None, 1e-5))
    return HeadNorms(*made)


def turns_of(count: int, turned: int | None, device: str) -> torch.Tensor | None:
    if turned is None:
        return None
    angles = torch.arange(count)[:, None] * torch.logspace(0, -2, turned // 2)
    return torch.stack((angles.cos(), angles.sin()), dim=-1).to(device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by_slot", [False, True])
@pytest.mark.parametrize(("head_size", "block_size", "turned", "normed"), CASES)
def test_heads_are_normed_turned_and_kept(
    head_size: int,
    block_size: int,
    turned: int | None,
    normed: str,
    by_slot: bool,
    kind: CacheKind,
    dtype: torch.dtype,
    device: str,
) -> None:
    generator = torch.Generator().manual_seed(head_size)
    width = NUM_HEADS + 2 * NUM_KV_HEADS
    heads = (3 * torch.randn(NUM_TOKENS, width, head_size, generator=generator)).to(dtype).to(device)
    norms, positions = norms_of(normed, head_size, dtype, device), torch.arange(NUM_TOKENS).flip(0)
    positions[5] = -1
    table = torch.randperm(NUM_TOKENS // block_size + 2, generator=generator)
    angles = turns_of(NUM_TOKENS, turned, device)
    caches = empty_pages(len(table), NUM_KV_HEADS, head_size, block_size, kind, device)
    places = positions.clamp(min=0)
    slots = torch.where(positions < 0, -1, table[places // block_size] * block_size + places % block_size)
    query, key, value = (part.double() for part in heads.split([NUM_HEADS, NUM_KV_HEADS, NUM_KV_HEADS], dim=1))
    if norms is not None:
        query, key = norms.apply(query.to(dtype), key.to(dtype))
    if angles is not None:
        query, key = (rotate_heads(part.double(), angles.double()[places]) for part in (query, key))
    if by_slot:
        turns = None if angles is None else angles[places.to(device)].contiguous()
        found = heads_to_slots(heads, *caches, slots.to(device), norms=norms, turns=turns)
    else:
        tables = table.int().repeat(NUM_TOKENS, 1).to(device)
        found = heads_to_cache(heads, *caches, tables, positions.int().to(device), norms=norms, rotations=angles)
    real = [i for i in range(NUM_TOKENS) if i != 5]
    room = {"rtol": 2 * torch.finfo(dtype).eps, "atol": 4 * torch.finfo(dtype).eps}
    torch.testing.assert_close(found[real].double(), query[real].double(), **room)
    for side, rows in zip(whole_cache(caches), (key, value), strict=True):
        kept, exact = side.flatten(0, 1)[slots[real].to(device)].cpu(), rows[real].float().cpu()
        # A rounding of 16 bits more or less is a step of bytes more or less, here and there.
        largest = exact.abs().amax(dim=-1, keepdim=True)
        step = 1.02 * largest / LARGEST[caches[0].dtype] if kind == "int8" else largest / 7.9
        off = (kept - exact).abs()
        assert (off <= step * (0.55 if kind == "int8" else 0.52) + largest * torch.finfo(dtype).eps).all()
        rounded = as_bytes(exact.to(dtype), kind)
        assert ((kept - rounded).abs() <= 1e-6 * largest).float().mean() > 0.8
        others = torch.ones(len(table) * block_size, dtype=torch.bool)
        others[slots[real]] = False
        assert side.flatten(0, 1).cpu()[others].isnan().all()

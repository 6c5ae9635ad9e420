"""The same as `heads_to_cache` for tokens that bring slots and angles, and each token by itself."""

from contextlib import nullcontext

import pytest
import torch

from pagedchat.ops.cache.heads_to_cache import heads_to_cache
from pagedchat.ops.cache.heads_to_slots import can_place, heads_to_slots
from pagedchat.ops.cache.layout import key_cache_shape, value_cache_shape
from tests.ops.cache.test_heads_to_cache import HEADS, make_norms
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import normal
from tests.tools.emulator_case import needs_compiler
from tools.emulator.ops import kernels_on_cpu

NUM_BLOCKS, BLOCK_SIZE = 20, 16
WHERE = [pytest.param("emulated", marks=needs_compiler), *DEVICES]


def caches(sizes: tuple[int, int, int], dtype: torch.dtype, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (NUM_BLOCKS, sizes[1], sizes[2], BLOCK_SIZE)
    keys = torch.zeros(key_cache_shape(*shape, dtype), dtype=dtype, device=device)
    return keys, torch.zeros(value_cache_shape(*shape), dtype=dtype, device=device)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("kind", ["none", "each head", "all heads"])
@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("sizes", HEADS[:3], ids=str)
def test_does_what_heads_to_cache_does(sizes: tuple[int, int, int], rotary: bool, kind: str, where: str) -> None:
    device, dtype = "cuda" if where == "cuda" else "cpu", torch.float16
    heads = normal(5, sizes[0] + 2 * sizes[1], sizes[2], device=device, dtype=dtype)
    norms = make_norms(kind, sizes, dtype, device)
    positions, blocks = torch.tensor([0, 17, -1, 40, 15]), torch.tensor([3, 7, 0, 1, 11])
    angles = torch.arange(64)[:, None] * torch.logspace(0, -2, sizes[2] // 2)
    turns = torch.stack((angles.cos(), angles.sin()), dim=-1).to(device) if rotary else None
    tables = blocks[:, None].expand(-1, 4).contiguous().int()
    slots = torch.where(positions < 0, -1, blocks * BLOCK_SIZE + positions % BLOCK_SIZE)
    expected, found = caches(sizes, dtype, device), caches(sizes, dtype, device)
    with kernels_on_cpu(seed=1) if where == "emulated" else nullcontext():
        wanted = heads_to_cache(
            heads.clone(), *expected, tables.to(device), positions.int().to(device), norms=norms, rotations=turns
        )
        of_tokens = None if turns is None else turns[positions.clamp(min=0).to(device)].contiguous()
        assert can_place(heads, norms, of_tokens) == (where != "cpu" and (rotary or norms is not None))
        query = heads_to_slots(heads.clone(), *found, slots.to(device), norms=norms, turns=of_tokens)
    live = positions >= 0
    assert torch.equal(query[live], wanted[live])
    assert all(map(torch.equal, found, expected))


def test_wrong_arguments_are_named() -> None:
    heads = torch.zeros(2, 6, 64)
    both = caches((2, 2, 64), torch.float32, "cpu")
    with pytest.raises(ValueError, match=r"slots has shape \[3\], expected \[2\]"):
        heads_to_slots(heads, *both, torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"slots is torch.int32"):
        heads_to_slots(heads, *both, torch.zeros(2, dtype=torch.int32))
    with pytest.raises(ValueError, match=r"turns has shape \[1, 32, 2\], expected \[2, 32, 2\]"):
        heads_to_slots(heads, *both, torch.zeros(2, dtype=torch.int64), turns=torch.zeros(1, 32, 2))
    with pytest.raises(ValueError, match="heads has 4 heads, expected more than 4"):
        heads_to_slots(heads[:, :4].contiguous(), *both, torch.zeros(2, dtype=torch.int64))

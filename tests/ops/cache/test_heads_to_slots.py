"""The same as `heads_to_cache` for tokens that bring slots and angles, and each token by itself."""

from contextlib import nullcontext
from itertools import product

import pytest
import torch

from pagedchat.ops.cache.heads_to_cache import heads_to_cache
from pagedchat.ops.cache.heads_to_slots import can_place, heads_to_slots
from pagedchat.ops.cache.layout import key_cache_shape, value_cache_shape
from pagedchat.ops.common.norm import HeadNorms
from tests.ops.cache.test_heads_to_cache import HEADS, make_norms
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import normal
from tests.tools.emulator_case import needs_compiler
from tools.emulator.ops import kernels_on_cpu

NUM_BLOCKS, BLOCK_SIZE = 20, 16
WHERE = [pytest.param("emulated", marks=needs_compiler), *DEVICES]
KINDS, OF = ["none", "each head", "all heads", "by weights of its own"], ["layer", "exact rms", "offset rms"]
SIZES = [
    pytest.param(*case, where, marks=marks)
    for where, marks in (("cpu", ()), ("cuda", pytest.mark.gpu))
    for case in product(HEADS[:3], (False, True), KINDS[:3])
]
EMULATED_SIZES = [
    pytest.param(HEADS[(i + rotary) % 3], rotary, kind, "emulated", marks=needs_compiler)
    for (i, kind), rotary in product(enumerate(KINDS[:3]), (False, True))
]
"""Each size with and without a rotation, each kind too."""
NORMS = [
    pytest.param(*case, where, marks=marks)
    for where, marks in (("cpu", ()), ("cuda", pytest.mark.gpu))
    for case in product(OF, KINDS)
]
EMULATED_NORMS = [
    pytest.param(OF[i % 3], kind, "emulated", marks=needs_compiler) for i, kind in enumerate((*KINDS, *KINDS[1:3]))
]
"""Each norm twice, each kind once or twice."""


def caches(sizes: tuple[int, int, int], dtype: torch.dtype, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (NUM_BLOCKS, sizes[1], sizes[2], BLOCK_SIZE)
    keys = torch.zeros(key_cache_shape(*shape, dtype), dtype=dtype, device=device)
    return keys, torch.zeros(value_cache_shape(*shape), dtype=dtype, device=device)


def check(
    positions: list[int],
    blocks: list[int],
    sizes: tuple[int, int, int],
    norms: HeadNorms | None,
    share: float,
    where: str,
) -> None:
    """Tokens at these positions, each in a block; `share`: of each head, which is turned."""
    device, dtype, num_tokens = "cuda" if where == "cuda" else "cpu", torch.float16, len(positions)
    heads = normal(num_tokens, sizes[0] + 2 * sizes[1], sizes[2], device=device, dtype=dtype)
    at, of_tokens = torch.tensor(positions), torch.tensor(blocks)
    angles = torch.arange(64)[:, None] * torch.logspace(0, -2, round(sizes[2] * share) // 2)
    turns = torch.stack((angles.cos(), angles.sin()), dim=-1).to(device) if share else None
    tables = of_tokens[:, None].expand(-1, 4).contiguous().int()
    slots = torch.where(at < 0, -1, of_tokens * BLOCK_SIZE + at % BLOCK_SIZE)
    expected, found = caches(sizes, dtype, device), caches(sizes, dtype, device)
    with kernels_on_cpu(seed=1) if where == "emulated" else nullcontext():
        wanted = heads_to_cache(
            heads.clone(), *expected, tables.to(device), at.int().to(device), norms=norms, rotations=turns
        )
        its_turns = None if turns is None else turns[at.clamp(min=0).to(device)].contiguous()
        assert can_place(heads, norms, its_turns) == (where != "cpu" and (share > 0 or norms is not None))
        query = heads_to_slots(heads.clone(), *found, slots.to(device), norms=norms, turns=its_turns)
    live = at >= 0
    assert torch.equal(query[live], wanted[live])
    assert all(map(torch.equal, found, expected))
    assert any(cache.any() for cache in found)


@pytest.mark.parametrize(("sizes", "rotary", "kind", "where"), [*EMULATED_SIZES, *SIZES], ids=str)
def test_does_what_heads_to_cache_does(sizes: tuple[int, int, int], rotary: bool, kind: str, where: str) -> None:
    norms = make_norms(kind, sizes, torch.float16, "cuda" if where == "cuda" else "cpu")
    check([0, 17, -1, 40, 15], [3, 7, 0, 1, 11], sizes, norms, float(rotary), where)


@pytest.mark.parametrize(("of", "kind", "where"), [*EMULATED_NORMS, *NORMS])
def test_other_norms_and_heads_of_which_a_part_is_turned(of: str, kind: str, where: str) -> None:
    norms = make_norms(kind, HEADS[0], torch.float16, "cuda" if where == "cuda" else "cpu", of)
    check([0, 17, -1, 40, 15], [3, 7, 0, 1, 11], HEADS[0], norms, 0.5, where)


@pytest.mark.parametrize("where", WHERE)
def test_values_of_a_prompt_go_eight_tokens_at_a_time(where: str) -> None:
    """A whole piece, one that ends in another block, one with padding in it, and a token of another sequence."""
    whole, other, broken = list(range(16, 24)), [30, 31, 32, 33, 34, 35, 36, 37], [40, 41, 42, -1, 44, 45, 46, 47]
    blocks = [5] * 8 + [6, 6, *[9] * 6] + [12] * 8 + [14]
    check([*whole, *other, *broken, 8], blocks, HEADS[1], None, 1.0, where)


def test_wrong_arguments_are_named() -> None:
    heads = torch.zeros(2, 6, 64)
    both = caches((2, 2, 64), torch.float32, "cpu")
    with pytest.raises(ValueError, match=r"slots has shape \[3\], expected \[2\]"):
        heads_to_slots(heads, *both, torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"slots is torch.int32"):
        heads_to_slots(heads, *both, torch.zeros(2, dtype=torch.int32))
    with pytest.raises(ValueError, match=r"turns has shape \[1, 32, 2\], expected \[2, \*, 2\]"):
        heads_to_slots(heads, *both, torch.zeros(2, dtype=torch.int64), turns=torch.zeros(1, 32, 2))
    with pytest.raises(ValueError, match="turns are of 66 elements, expected at most 64"):
        heads_to_slots(heads, *both, torch.zeros(2, dtype=torch.int64), turns=torch.zeros(2, 33, 2))
    with pytest.raises(ValueError, match="heads has 4 heads, expected more than 4"):
        heads_to_slots(heads[:, :4].contiguous(), *both, torch.zeros(2, dtype=torch.int64))

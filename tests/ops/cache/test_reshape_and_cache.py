import random

import pytest
import torch

from pagedchat.ops.cache.layout import key_cache_shape, value_cache_shape
from pagedchat.ops.cache.reshape_and_cache import FEW_TOKENS, reshape_and_cache
from tests.ops.paged_case import DEVICES

DTYPES = [torch.float16, torch.bfloat16, torch.float32]
HEAD_SIZES = [64, 80, 96, 112, 128, 256]
BLOCK_SIZES = [8, 16, 32]
NUM_TOKENS = [1, 33, FEW_TOKENS + 45]  # a few, and more than a few


def decode_slots(num_tokens: int, block_size: int, rng: random.Random) -> list[int]:
    """Every token in a block of its own; one in five is padding."""
    blocks = rng.sample(range(num_tokens + 3), num_tokens)
    slots = [block * block_size + rng.randrange(block_size) for block in blocks]
    return [-1 if rng.random() < 0.2 else slot for slot in slots]


def prefill_slots(num_tokens: int, block_size: int, rng: random.Random) -> list[int]:
    """Chunks of texts, each from somewhere in a block on through shuffled blocks."""
    free = rng.sample(range(num_tokens + 4), num_tokens + 4)
    slots: list[int] = []
    while len(slots) < num_tokens:
        offset, length = rng.randrange(block_size), rng.randint(1, 3 * block_size)
        table = [free.pop() for _ in range(-(-(offset + length) // block_size))]
        slots += [table[i // block_size] * block_size + i % block_size for i in range(offset, offset + length)]
    return slots[:num_tokens]


def shuffled_slots(num_tokens: int, block_size: int, rng: random.Random) -> list[int]:
    """Slots of full blocks in any order: neighbours that never fit."""
    slots = list(range(-(-num_tokens // block_size) * block_size))
    rng.shuffle(slots)
    return slots[:num_tokens]


SLOTS = {"decode": decode_slots, "prefill": prefill_slots, "shuffled": shuffled_slots}


def check_paged(
    slots: list[int],
    *,
    dtype: torch.dtype,
    head_size: int = 64,
    block_size: int = 16,
    num_kv_heads: int = 3,
    device: str = "cpu",
    strided: bool = False,
) -> None:
    num_blocks = max(slots) // block_size + 2
    key_cache = torch.randn(key_cache_shape(num_blocks, num_kv_heads, head_size, block_size, dtype)).to(dtype)
    value_cache = torch.randn(value_cache_shape(num_blocks, num_kv_heads, head_size, block_size)).to(dtype)
    both = torch.randn(num_kv_heads, len(slots), 2, head_size).to(dtype).to(device)
    key, value = (both[:, :, side].transpose(0, 1) for side in range(2))
    if not strided:
        key, value = key.contiguous(), value.contiguous()
    written = key_cache.to(device), value_cache.to(device)
    reshape_and_cache(key, value, *written, torch.tensor(slots, device=device))
    for row, slot in enumerate(slots):
        if slot >= 0:
            block, offset = slot // block_size, slot % block_size
            key_cache[block, :, :, offset] = key[row].cpu().view(num_kv_heads, -1, key_cache.shape[-1])
            value_cache[block, :, :, offset] = value[row].cpu()
    assert torch.equal(written[0].cpu(), key_cache)
    assert torch.equal(written[1].cpu(), value_cache)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("strided", [False, True], ids=["contiguous", "strided"])
@pytest.mark.parametrize("num_tokens", NUM_TOKENS)
@pytest.mark.parametrize("kind", SLOTS)
def test_any_slots_in_the_paged_layout(kind: str, num_tokens: int, strided: bool, device: str) -> None:
    for seed in range(3):
        slots = SLOTS[kind](num_tokens, 16, random.Random(seed))
        check_paged(slots, dtype=torch.float16, device=device, strided=strided)


@pytest.mark.gpu
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("head_size", HEAD_SIZES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_size_and_type(dtype: torch.dtype, head_size: int, block_size: int) -> None:
    for num_tokens in NUM_TOKENS:
        slots = prefill_slots(num_tokens, block_size, random.Random(num_tokens))
        check_paged(slots, dtype=dtype, head_size=head_size, block_size=block_size, device="cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("num_kv_heads", [1, 2, 7, 32])
def test_any_number_of_heads(num_kv_heads: int) -> None:
    for num_tokens in NUM_TOKENS:
        slots = prefill_slots(num_tokens, 16, random.Random(num_tokens))
        check_paged(slots, dtype=torch.bfloat16, num_kv_heads=num_kv_heads, device="cuda")


@pytest.mark.gpu
def test_rows_that_are_not_whole_are_copied_first() -> None:
    key_cache = torch.zeros(key_cache_shape(2, 2, 64, 16, torch.float16), device="cuda", dtype=torch.float16)
    value_cache = torch.zeros(value_cache_shape(2, 2, 64, 16), device="cuda", dtype=torch.float16)
    tokens = torch.randn(5, 2, 65, device="cuda").half()[..., 1:]
    reshape_and_cache(tokens, tokens, key_cache, value_cache, torch.arange(16, 21, device="cuda"))
    assert torch.equal(value_cache[1, :, :, :5].permute(2, 0, 1), tokens)
    assert torch.equal(key_cache[1, :, :, :5].permute(2, 0, 1, 3).flatten(2), tokens)


@pytest.mark.gpu
@pytest.mark.parametrize("num_tokens", NUM_TOKENS)
def test_blocks_past_four_gibi_elements(num_tokens: int) -> None:
    num_blocks = (1 << 32) // (64 * 16) + 100
    key_cache = torch.empty(
        key_cache_shape(num_blocks, 1, 64, 16, torch.float16), device="cuda", dtype=torch.float16
    )
    value_cache = torch.empty(value_cache_shape(num_blocks, 1, 64, 16), device="cuda", dtype=torch.float16)
    key, value = (torch.randn(num_tokens, 1, 64, device="cuda").half() for _ in range(2))
    slots = torch.arange(num_tokens, device="cuda") + (num_blocks - 50) * 16
    reshape_and_cache(key, value, key_cache, value_cache, slots)
    blocks, offsets = slots // 16, slots % 16
    assert torch.equal(key_cache[blocks, :, :, offsets].flatten(2), key)
    assert torch.equal(value_cache[blocks, :, :, offsets], value)


@pytest.mark.gpu
@pytest.mark.parametrize("num_tokens", NUM_TOKENS)
def test_captured_in_a_graph(num_tokens: int) -> None:
    num_blocks = num_tokens // 16 + 2
    key_cache = torch.zeros(
        key_cache_shape(num_blocks, 2, 64, 16, torch.float16), device="cuda", dtype=torch.float16
    )
    value_cache = torch.zeros(value_cache_shape(num_blocks, 2, 64, 16), device="cuda", dtype=torch.float16)
    tokens = torch.zeros(num_tokens, 2, 64, device="cuda", dtype=torch.float16)
    slots = torch.full((num_tokens,), -1, device="cuda")
    reshape_and_cache(tokens, tokens, key_cache, value_cache, slots)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        reshape_and_cache(tokens, tokens, key_cache, value_cache, slots)
    tokens.normal_()
    slots.copy_(torch.arange(num_tokens, device="cuda") + 5)
    graph.replay()
    assert torch.equal(value_cache[slots // 16, :, :, slots % 16], tokens)
    assert torch.equal(key_cache[slots // 16, :, :, slots % 16].flatten(2), tokens)


@pytest.mark.gpu
@pytest.mark.parametrize("num_tokens", NUM_TOKENS)
def test_a_launch_that_begins_early_waits_for_what_it_reads(num_tokens: int) -> None:
    cache_shape = key_cache_shape(num_tokens // 16 + 2, 2, 64, 16, torch.float16)
    key_cache = torch.zeros(cache_shape, device="cuda", dtype=torch.float16)
    value_cache = torch.zeros(value_cache_shape(cache_shape[0], 2, 64, 16), device="cuda", dtype=torch.float16)
    slots = torch.arange(num_tokens, device="cuda") + 5
    delay = torch.ones(1 << 24, device="cuda")
    for _ in range(10):
        fresh, tokens = (torch.randn(num_tokens, 2, 64, device="cuda").half() for _ in range(2))
        delay.mul_(1.5)
        tokens.copy_(fresh)
        reshape_and_cache(tokens, tokens, key_cache, value_cache, slots, overlap=True)
        assert torch.equal(value_cache[slots // 16, :, :, slots % 16], fresh)
        assert torch.equal(key_cache[slots // 16, :, :, slots % 16].flatten(2), fresh)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_each_token_lands_in_its_slot_and_nothing_else_changes(dtype: torch.dtype, device: str) -> None:
    shape = (5, 4, 2, 3)  # [num_blocks, block_size, num_kv_heads, head_dim]
    key_cache = torch.randn(shape, device=device).to(dtype)
    value_cache = torch.randn(shape, device=device).to(dtype)
    before = key_cache.clone(), value_cache.clone()
    key, value = (torch.randn(2, 3, 3, device=device).to(dtype).transpose(0, 1) for _ in range(2))  # strided
    slots = [17, 0, 6]
    reshape_and_cache(key, value, key_cache, value_cache, torch.tensor(slots, device=device))
    for cache, new, old in ((key_cache, key, before[0]), (value_cache, value, before[1])):
        for row, slot in enumerate(slots):
            assert torch.equal(cache[slot // 4, slot % 4], new[row])
            old[slot // 4, slot % 4] = new[row]
        assert torch.equal(cache, old)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": torch.zeros(3, 2, 4)}, r"key has shape \[3, 2, 4\], expected \[\*, 2, 3\]"),
        ({"value": torch.zeros(2, 2, 3)}, r"value has shape \[2, 2, 3\], expected \[3, 2, 3\]"),
        ({"slot_mapping": torch.zeros(2, dtype=torch.int64)}, r"slot_mapping has shape \[2\], expected \[3\]"),
        ({"slot_mapping": torch.zeros(3)}, "slot_mapping is torch.float32, expected torch.int64"),
        ({"key": torch.zeros(3, 2, 3).double()}, "key is torch.float64 on cpu, expected torch.float32 on cpu"),
        (
            {"key_cache": torch.zeros(5, 2, 3, 4, 4)},
            r"key_cache has shape \[5, 2, 3, 4, 4\], expected \[5, 4, 1, 4, 4\]",
        ),
    ],
)
def test_wrong_arguments_are_named(change: dict[str, torch.Tensor], message: str) -> None:
    arguments = {
        "key": torch.zeros(3, 2, 3),
        "value": torch.zeros(3, 2, 3),
        "key_cache": torch.zeros(5, 4, 2, 3),
        "value_cache": torch.zeros(5, 4, 2, 3),
        "slot_mapping": torch.arange(3),
    }
    if change.get("key_cache") is not None:
        arguments["value_cache"] = torch.zeros(5, 4, 4, 4)
    with pytest.raises(ValueError, match=message):
        reshape_and_cache(**(arguments | change))

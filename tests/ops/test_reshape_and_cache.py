import pytest
import torch

from pagedchat.ops.reshape_and_cache import reshape_and_cache
from tests.ops.paged_case import DEVICES


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
    with pytest.raises(ValueError, match=message):
        reshape_and_cache(**(arguments | change))

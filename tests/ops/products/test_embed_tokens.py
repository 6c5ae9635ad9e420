import pytest
import torch

from pagedchat.ops.products.embed_tokens import embed_tokens
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import DTYPES, normal


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float32], ids=str)
@pytest.mark.parametrize("width", [768, 100])
def test_vectors_of_tokens_and_positions(width: int, dtype: torch.dtype, device: str) -> None:
    table = normal(50, width, device=device, dtype=dtype)
    places = normal(12, width, device=device, dtype=dtype)
    token_ids = torch.tensor([3, 49, 0], dtype=torch.int32, device=device)
    positions = torch.tensor([0, 9, -1], dtype=torch.int32, device=device)
    assert torch.equal(embed_tokens(table, token_ids, positions), table[[3, 49, 0]])
    scaled = embed_tokens(table, token_ids, positions, scale=1.7, position_vectors=places)
    wanted = table[[3, 49, 0]] * 1.7 + places[[0, 9, 0]]
    if dtype == torch.float32:  # a GPU rounds once where torch rounds twice
        torch.testing.assert_close(scaled, wanted, rtol=1e-6, atol=1e-6)
    else:
        assert torch.equal(scaled, wanted)
    both = embed_tokens(table, token_ids, positions, position_vectors=places, position_offset=2)
    assert torch.equal(both, table[[3, 49, 0]] + places[[2, 11, 2]])

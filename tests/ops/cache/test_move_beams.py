from dataclasses import replace

import pytest
import torch

from pagedchat.ops.cache.move_beams import move_beams
from pagedchat.ops.sampling.decode_state import DecodeState
from tests.ops.paged_case import DEVICES
from tests.ops.sampling.decode_state_case import make_state

FAR_AWAY = 1 << 30
TABLES = [[0, 1, 2, 9], [0, 3, 4, 10], [0, 5, 6, 11], [7, FAR_AWAY, FAR_AWAY, FAR_AWAY], [8, 12, 13, FAR_AWAY]]


def rows_at(position: int, device: str) -> DecodeState:
    """Three beams, a chat, and padding."""
    state = make_state([position] * 3 + [5, -1], device)
    return replace(state, block_tables=torch.tensor(TABLES, dtype=torch.int32, device=device))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("page", [(8, 4, 8), (16, 24, 64)])
@pytest.mark.parametrize(("position", "num_shared", "copied"), [(19, 2, True), (23, 2, True), (24, 3, False)])
def test_forks_share_full_blocks_and_copy_the_last_one(
    position: int, num_shared: int, copied: bool, page: tuple[int, ...], device: str
) -> None:
    state, size = rows_at(position, device), 8
    cache = torch.randn(2, 2, 14, *page, device=device)
    before = cache.clone()
    sources, tokens = (
        torch.tensor(values, dtype=torch.int32, device=device)
        for values in ([1, 1, 1, -1, -1], [40, 41, 42, 43, 44])
    )
    move_beams(cache, state, sources, tokens, size)
    shared = TABLES[1][:num_shared]
    expected = [shared + TABLES[0][num_shared:], TABLES[1], shared + TABLES[2][num_shared:], *TABLES[3:]]
    assert state.block_tables.tolist() == expected
    assert state.token_ids.tolist() == [40, 41, 42, 1, 1]
    assert state.positions.tolist() == [position] * 3 + [5, -1]
    if copied:
        for row in (0, 2):
            before[:, :, TABLES[row][num_shared]] = before[:, :, TABLES[1][num_shared]]
    assert torch.equal(cache, before)


def test_wrong_arguments_are_named() -> None:
    state, numbers = rows_at(3, "cpu"), torch.zeros(5, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"sources has shape \[4\], expected \[5\]"):
        move_beams(torch.zeros(1, 2, 3, 8), state, numbers[:4], numbers, 8)
    with pytest.raises(ValueError, match=r"next_tokens is torch\.int64, expected torch\.int32"):
        move_beams(torch.zeros(1, 2, 3, 8), state, numbers, numbers.long(), 8)

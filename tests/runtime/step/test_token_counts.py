import pytest
import torch

from pagedchat.ops.sampling.sample_rows import IN_PROMPT
from pagedchat.runtime.step.token_counts import count_one, write_counts
from tests.ops.paged_case import DEVICES


@pytest.mark.parametrize("device", DEVICES)
def test_counts_say_what_is_in_the_prompt_and_how_often_in_the_reply(device: str) -> None:
    counts = torch.full((3, 6), 9, dtype=torch.int16, device=device)
    write_counts(counts, [(2, [1, 1, 4, 5, 5, 1], 3), (0, [3], 0)])
    assert counts.tolist() == [
        [0, 0, 0, 1, 0, 0],
        [9] * 6,
        [0, IN_PROMPT + 1, 0, 0, IN_PROMPT, 2],
    ]
    count_one(counts, [2, 1], torch.tensor([0, 3, 1, 5], dtype=torch.int32, device=device))
    assert counts[1].tolist() == [9, 9, 9, 10, 9, 9]
    assert counts[2].tolist() == [0, IN_PROMPT + 2, 0, 0, IN_PROMPT, 2]


def test_counts_end_at_what_they_can_hold() -> None:
    counts = torch.zeros(1, 2, dtype=torch.int16)
    write_counts(counts, [(0, [0] * 40_000 + [1], 0)])
    assert counts.tolist() == [[32767, 1]]
    write_counts(counts, [(0, [0] * 40_001, 1)])
    assert counts.tolist() == [[-1, 0]]


def test_without_rows_nothing_is_counted() -> None:
    counts = torch.ones(1, 2, dtype=torch.int16)
    write_counts(counts, [])
    assert counts.tolist() == [[1, 1]]

"""Tokens drawn from lists: those that are drawn from whole rows in which all others cannot be."""

import pytest
import torch

from pagedchat.ops.sampling.sample import draw_next
from pagedchat.ops.sampling.sample_listed import Listed, sample_listed
from pagedchat.ops.sampling.sample_rows import SampleRow, pack_rows
from tests.ops.paged_case import DEVICES
from tests.ops.sampling.decode_state_case import make_state

VOCAB_SIZE = 3000
KINDS = [
    SampleRow(seed=1),
    SampleRow(temperature=0),
    SampleRow(temperature=0.5, top_k=5, seed=2),
    SampleRow(top_p=0.7, seed=3),
    SampleRow(top_k=40, top_p=0.9, min_p=0.02, counts_row=1, seed=4),
    SampleRow(stays=True),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("most", [1, 3, 60, 255, 2500])
def test_a_list_is_drawn_from_like_the_row_that_it_is_of(most: int, device: str) -> None:
    num_rows = 4 * len(KINDS)
    of = torch.Generator().manual_seed(most)
    logits = torch.full((num_rows, VOCAB_SIZE), float("-inf"))
    listed = Listed.empty(num_rows, VOCAB_SIZE, torch.device("cpu"))
    for row in range(num_rows):
        count = int(torch.randint(1, most + 1, (1,), generator=of))
        tokens = torch.randperm(VOCAB_SIZE, generator=of)[:count].sort().values
        found = (torch.randn(count, generator=of) * 2).round(decimals=1)  # some are equal
        logits[row, tokens] = found
        listed.token_ids[row, :count], listed.logits[row, :count], listed.counts[row] = tokens.int(), found, count
    listed.counts[7] = 0
    sampling = pack_rows(KINDS[row % len(KINDS)] for row in range(num_rows))
    counts = torch.zeros(2, VOCAB_SIZE, dtype=torch.int16)
    counts[:, ::2] = 32767  # no more is counted
    state, expected = (make_state([*range(num_rows)], where) for where in (device, "cpu"))
    for each in (state, expected):
        each.history[(int(each.step) - 1) % len(each.history)] = 1  # they were moved on by that
    own_counts = counts.clone().to(device)
    sample_listed(state, Listed(*(each.to(device) for each in listed)), sampling.to(device), own_counts)
    logits[7, :], logits[7, 1] = float("-inf"), 0.0  # the token that is there
    draw_next(expected, logits, sampling, torch.zeros_like(counts))
    assert torch.equal(state.token_ids.cpu(), expected.token_ids)
    assert torch.equal(state.history, expected.history)
    drawn = expected.token_ids[4 :: len(KINDS)].long()
    wanted = counts.clone()
    for token in drawn.tolist():
        wanted[1, token] += int(wanted[1, token] < 32767)
    assert torch.equal(own_counts.cpu(), wanted)


def test_what_does_not_go_together_is_refused() -> None:
    state, listed = make_state([0, 1], "cpu"), Listed.empty(2, 8, torch.device("cpu"))
    sampling = pack_rows([SampleRow()] * 2)
    with pytest.raises(ValueError, match=r"listed\.logits has shape \[2, 7\], expected \[2, 8\]"):
        sample_listed(state, listed._replace(logits=listed.logits[:, 1:]), sampling)
    with pytest.raises(ValueError, match=r"listed\.counts has shape \[1\]"):
        sample_listed(state, listed._replace(counts=listed.counts[1:]), sampling)
    with pytest.raises(ValueError, match=r"sampling is torch\.int64"):
        sample_listed(state, listed, sampling.long())
    with pytest.raises(ValueError, match=r"counts is torch\.int32"):
        sample_listed(state, listed, sampling, torch.zeros(1, 9, dtype=torch.int32))

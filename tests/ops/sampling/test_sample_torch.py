"""Tokens without a weight are put aside before one is drawn: whatever the row, that changes nothing."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pagedchat.ops.sampling import sample_torch
from pagedchat.ops.sampling.sample_rows import IN_PROMPT, PackedRow, SampleRow, pack_rows, unpack_rows
from pagedchat.ops.sampling.sample_torch import sample_row

ROWS = st.builds(
    SampleRow,
    temperature=st.sampled_from([1e-30, 0.01, 0.3, 1.0, 4.0, 1e30]),
    top_k=st.sampled_from([0, 1, 5, 255, 256, 700]),
    top_p=st.sampled_from([1e-6, 0.5, 0.95, 1.0]),
    min_p=st.sampled_from([0.0, 1e-9, 0.1, 1.0]),
    repetition_penalty=st.sampled_from([0.7, 1.0, 1.2]),
    presence_penalty=st.sampled_from([-1.0, 0.0, 3.0]),
    frequency_penalty=st.sampled_from([0.0, 0.5]),
    seed=st.integers(0, 2**64 - 1),
    counts_row=st.sampled_from([-1, 0]),
)


def packed(row: SampleRow) -> PackedRow:
    return unpack_rows(pack_rows([row]))[0]


def drawn_from_all(logits: torch.Tensor, row: PackedRow, position: int, counts: torch.Tensor) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample_torch, "_near", lambda *_: None)
        return sample_row(logits, row, position, counts)


@given(
    row=ROWS,
    vocab_size=st.sampled_from([1, 3, 255, 257, 2000, 20_004]),
    spread=st.sampled_from([0.0, 0.5, 4.0, 40.0]),
    masked=st.sampled_from([0.0, 0.5, 0.999]),
    seed=st.integers(0, 2**31),
)
def test_the_token_is_that_which_is_drawn_from_all(
    row: SampleRow, vocab_size: int, spread: float, masked: float, seed: int
) -> None:
    of = torch.Generator().manual_seed(seed)
    logits = (torch.randn(vocab_size, generator=of) * spread).round(decimals=1)
    logits[torch.rand(vocab_size, generator=of) < masked] = float("-inf")
    logits[seed % vocab_size] = 2.0 + 3 * spread
    counts = torch.zeros(1, vocab_size, dtype=torch.int16)
    counts[0, torch.randint(vocab_size, (20,), generator=of)] = 2
    counts[0, torch.randint(vocab_size, (20,), generator=of)] |= IN_PROMPT
    for position in range(4):
        expected = drawn_from_all(logits, packed(row), position, counts)
        assert sample_row(logits, packed(row), position, counts) == expected


def test_of_logits_with_a_few_that_are_likely_only_those_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.linspace(-60, -40, 4000)
    logits[[7, 1500, 3999]] = torch.tensor([3.0, 2.5, 3.0])
    seen = list[int]()
    draw = sample_torch._draw
    monkeypatch.setattr(sample_torch, "_draw", lambda few, *rest: seen.append(len(few)) or draw(few, *rest))
    found = {sample_row(logits, packed(SampleRow()), position, None) for position in range(40)}
    assert found == {7, 1500, 3999}
    assert set(seen) == {3}
    assert sample_row(logits, packed(SampleRow(temperature=50)), 0, None) in range(4000)
    assert seen[-1] == 4000  # at such a temperature all of them are likely enough


@pytest.mark.parametrize("vocab_size", [1, 4, 7, 4003])
def test_counted_tokens_are_found_wherever_they_are(vocab_size: int) -> None:
    counts = torch.zeros(3, vocab_size, dtype=torch.int16)
    counts[1, -1], counts[1, vocab_size // 2], counts[2, 0] = IN_PROMPT, 1, 5
    for row in counts:
        assert torch.equal(sample_torch._counted(row), row.nonzero()[:, 0])

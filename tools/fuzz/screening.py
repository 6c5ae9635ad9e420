"""Screened heads, by their kernels on the CPU: whatever rows and vocabularies are, tokens have the best logits, and
those that are drawn are drawn as from all of them."""

from typing import NamedTuple

import torch
from hypothesis import strategies as st

from pagedchat.errors import KernelError
from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.ops.sampling.sample_rows import SampleRow
from pagedchat.ops.screening.screen import screen_of
from pagedchat.ops.screening.screened_argmax import screened_argmax
from pagedchat.ops.screening.screened_draw import screened_draw
from tests.ops.sampling.decode_state_case import make_state
from tests.ops.screening.screened_draw_case import draw_case
from tools.emulator.compiler import find_compiler
from tools.emulator.ops import kernels_on_cpu
from tools.fuzz.target import Target

_ROUNDING = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
"""Of the largest logit, and of what is next to it."""
_LOST_IN_SUMS = 2.0**-22


class _Head(NamedTuple):
    """Sizes, and what is done to random numbers."""

    num_seqs: int
    hidden: int
    vocab_size: int
    dtype: torch.dtype
    seed: int
    spread: float
    """Of the weights."""
    outlier: float
    """What one column of weights and rows is multiplied by."""
    copies: int
    """Rows of the vocabulary that are the last one again."""


_HEADS = st.builds(
    _Head,
    num_seqs=st.one_of(st.integers(1, 9), st.sampled_from([16, 17, 33, 64])),
    hidden=st.integers(1, 40).map(lambda pieces: 8 * pieces),
    vocab_size=st.integers(1, 600),
    dtype=st.sampled_from([*_ROUNDING]),
    seed=st.integers(0, 2**31),
    spread=st.sampled_from([1e-6, 1e-3, 0.1, 3.0, 500.0]),
    outlier=st.sampled_from([0.0, 1.0, 50.0, 3000.0]),
    copies=st.integers(0, 5),
)


def _check_tokens(example: _Head) -> None:
    try:
        find_compiler()
    except KernelError:
        return
    rows, head = _numbers(example)
    state = make_state([place % 7 - 1 for place in range(len(rows))], "cpu")
    positions = state.positions.clone()
    with kernels_on_cpu(seed=example.seed % 97, num_multiprocessors=3):
        screened_argmax(state, rows, screen_of(head))
    _hold(state, positions, rows, head)


def _numbers(example: _Head) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and the vocabulary."""
    of = torch.Generator().manual_seed(example.seed)
    head = torch.randn(example.vocab_size, example.hidden, generator=of) * example.spread
    rows = torch.randn(example.num_seqs, example.hidden, generator=of)
    column = example.seed % example.hidden
    head[:, column] *= example.outlier
    rows[:, column] *= example.outlier
    places = torch.randint(example.vocab_size, (example.copies,), generator=of)
    head[places] = head[-1].clone()
    most = torch.finfo(example.dtype).max
    return rows.clamp(-most, most).to(example.dtype), head.clamp(-most, most).to(example.dtype)


def _hold(state: DecodeState, positions: torch.Tensor, rows: torch.Tensor, head: torch.Tensor) -> None:
    most = torch.finfo(head.dtype).max
    logits = (rows.double() @ head.double().T).clamp(-most, most)  # beyond that all are infinite
    magnitudes = rows.double().abs() @ head.double().abs().T
    room = logits.abs().amax(dim=1) * _ROUNDING[head.dtype] + len(head[0]) * _LOST_IN_SUMS * magnitudes.amax(dim=1)
    tokens, there = state.token_ids.long(), positions >= 0
    short = logits.amax(dim=1) - logits.gather(1, tokens[:, None])[:, 0]
    assert bool((short <= room + 1e-6)[there].all()), f"{tokens.tolist()} are {short.tolist()} behind the best"
    assert tokens[~there].tolist() == [0] * int((~there).sum())
    first = torch.tensor([int((head == head[token]).all(dim=1).nonzero()[0, 0]) for token in tokens])
    assert torch.equal(first[there], tokens[there]), "not the first of equal rows"
    assert torch.equal(state.positions, positions + there.int())


class _Draw(NamedTuple):
    """Sizes, and how each row is drawn."""

    hidden: int
    vocab_size: int
    dtype: torch.dtype
    most: int
    """Eighths that elements are at most: few of them make many tokens equal."""
    rows: list[SampleRow]
    seed: int


_SAMPLE_ROWS = st.builds(
    SampleRow,
    temperature=st.sampled_from([0.0, 0.01, 0.7, 1.0, 5.0, 1e6]),
    top_k=st.one_of(st.integers(-1, 130), st.integers(1, 9)),
    top_p=st.sampled_from([1e-6, 0.5, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.001, 0.2, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.1, 3.0]),
    presence_penalty=st.sampled_from([0.0, 0.5]),
    frequency_penalty=st.sampled_from([0.0, 2.0]),
    seed=st.integers(0, 2**63),
    counts_row=st.integers(-1, 0),
    stays=st.sampled_from([False, False, False, True]),
)
_DRAWS = st.builds(
    _Draw,
    hidden=st.integers(1, 18).map(lambda pieces: 8 * pieces),
    vocab_size=st.integers(1, 400),
    dtype=st.sampled_from([*_ROUNDING]),
    most=st.sampled_from([0, 1, 2, 9]),
    rows=st.one_of([st.lists(_SAMPLE_ROWS, min_size=few, max_size=few + 2) for few in (1, 17)]),
    seed=st.integers(0, 2**31),
)


def _check_draws(example: _Draw) -> None:
    try:
        find_compiler()
    except KernelError:
        return
    sizes = len(example.rows), example.vocab_size, example.hidden
    case = draw_case(*sizes, example.dtype, "cpu", most=example.most, rows=example.rows)
    state, counts = case.state(), case.counts.clone()
    with kernels_on_cpu(seed=example.seed % 97, num_multiprocessors=3):
        screened_draw(state, case.rows, screen_of(case.head), case.sampling, counts)
    expected, expected_counts = case.expected()
    assert torch.equal(state.token_ids, expected.token_ids), f"{state.token_ids} and {expected.token_ids}"
    assert torch.equal(counts, expected_counts)
    assert torch.equal(state.positions, expected.positions)


TARGETS = [
    Target("screened heads", _HEADS, _check_tokens),
    Target("draws from few", _DRAWS, _check_draws),
]

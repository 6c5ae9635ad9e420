import math
from dataclasses import fields

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.ops.sampling import sample_torch
from pagedchat.ops.sampling.sample_rows import pack_rows, unpack_rows
from pagedchat.ops.screening.plan import MAX_TOP_K
from pagedchat.runtime.step import sampler
from pagedchat.runtime.step.sampler import choice_for, op_rows, sample
from pagedchat.runtime.step.sampling_row import SamplingRow

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
NUM_DRAWS = 4000


def rows(params: SamplingParams, count: int, seed: int = 1, tokens: list[int] | None = None) -> list[SamplingRow]:
    """Rows of one sequence at consecutive positions, so that each draws another number."""
    return [SamplingRow(params, [0] * i if tokens is None else tokens, seed + i) for i in range(count)]


def frequencies(logits: torch.Tensor, params: SamplingParams, tokens: list[int] | None = None) -> torch.Tensor:
    drawn = sample(logits.expand(NUM_DRAWS, -1), rows(params, NUM_DRAWS, tokens=tokens or [0]))
    return torch.bincount(torch.tensor(drawn), minlength=len(logits)) / NUM_DRAWS


def nucleus(logits: torch.Tensor, top_k: int, top_p: float) -> torch.Tensor:
    """The filtered distribution, the slow and plain way."""
    order = sorted(range(len(logits)), key=lambda i: -float(logits[i]))[: top_k or None]
    probabilities = torch.softmax(logits[order].double(), 0).tolist()
    kept, mass = [], 0.0
    for i, probability in zip(order, probabilities, strict=True):
        if mass >= top_p:
            break
        kept.append(i)
        mass += probability
    result = torch.zeros(len(logits), dtype=torch.float64)
    result[kept] = torch.softmax(logits[kept].double(), 0)
    return result


@pytest.mark.parametrize("device", DEVICES)
def test_greedy_takes_the_most_likely(device: str) -> None:
    logits = torch.randn(5, 50, device=device)
    assert sample(logits, rows(SamplingParams(temperature=0), 5)) == logits.argmax(-1).tolist()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("top_k", "top_p", "temperature"),
    [(0, 1.0, 1.0), (0, 1.0, 0.5), (3, 1.0, 1.0), (0, 0.8, 1.0), (5, 0.6, 1.5), (1, 1.0, 1.0), (-1, 0.01, 1.0)],
)
def test_draws_follow_the_filtered_distribution(top_k: int, top_p: float, temperature: float, device: str) -> None:
    logits = torch.tensor([0.1, 2.0, -1.0, 1.5, 0.0, 1.0, -3.0, 0.7])
    params = SamplingParams(top_k=top_k, top_p=top_p, temperature=temperature)
    expected = nucleus(logits / temperature, max(top_k, 0), top_p)
    found = frequencies(logits.to(device), params)
    assert torch.all(found[expected == 0] == 0)
    torch.testing.assert_close(found.double(), expected, atol=0.03, rtol=0)


@pytest.mark.parametrize("params", [SamplingParams(top_p=0.9), SamplingParams(top_k=60), SamplingParams(top_k=9)])
def test_short_list_and_full_sort_choose_the_same(params: SamplingParams, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.randn(200, 300, generator=torch.Generator().manual_seed(0)) * 2
    chosen = []
    for width in (4, 32, 300):
        monkeypatch.setattr(sample_torch, "SHORTLIST", width)
        chosen.append(sample(logits, rows(params, 200)))
    assert chosen[0] == chosen[1] == chosen[2]
    assert len(set(chosen[0])) > 20


def test_result_does_not_depend_on_the_rest_of_the_batch() -> None:
    logits = torch.randn(6, 40, generator=torch.Generator().manual_seed(3))
    kinds = [
        SamplingParams(temperature=0),
        SamplingParams(),
        SamplingParams(top_p=0.7),
        SamplingParams(top_k=4, repetition_penalty=1.3),
        SamplingParams(temperature=0, repetition_penalty=2.0),
        SamplingParams(temperature=2.0, top_p=0.99),
    ]
    batch = [SamplingRow(params, [1, 2, 3] * (i + 1), 40 + i) for i, params in enumerate(kinds)]
    alone = [sample(logits[i : i + 1], [row])[0] for i, row in enumerate(batch)]
    assert sample(logits, batch) == alone
    assert sample(logits.flip(0), batch[::-1]) == alone[::-1]


@pytest.mark.parametrize("device", DEVICES)
def test_seed_draws_the_same_alone_and_among_63_others(device: str) -> None:
    """Text of several tokens, each from logits that follow from the tokens before it; devices agree too."""
    vectors = torch.randn(500, 500, generator=torch.Generator().manual_seed(5)) * 2

    def text(batch: list[SamplingRow], where: str) -> list[list[int]]:
        for _ in range(8):
            logits = vectors[[row.token_ids[-1] for row in batch]].to(where)
            for row, token_id in zip(batch, sample(logits, batch), strict=True):
                row.token_ids.append(token_id)
        return [row.token_ids for row in batch]

    def batch() -> list[SamplingRow]:
        params = [
            SamplingParams(
                temperature=i % 3 / 2, top_k=i % 5 * 20, top_p=1 - i % 4 / 10, repetition_penalty=1 + i % 2
            )
            for i in range(64)
        ]
        return [SamplingRow(params[i], list(range(i, i + 3)), 100 + i) for i in range(64)]

    together = text(batch(), device)
    for i in (0, 1, 31, 47, 62, 63):
        assert text(batch()[i : i + 1], "cpu") == together[i : i + 1]


def test_seed_and_position_decide() -> None:
    logits = torch.zeros(1, 1000)
    params = SamplingParams()

    def drawn(seed: int, position: int) -> int:
        return sample(logits, [SamplingRow(params, [0] * position, seed)])[0]

    assert drawn(1, 5) == drawn(1, 5)
    assert len({drawn(1, 5), drawn(1, 6), drawn(2, 5), drawn(2, 6)}) == 4


def test_repetition_penalty_divides_positive_and_multiplies_negative_logits() -> None:
    logits = torch.tensor([[1.0, 4.0, -1.0, 3.0]])
    before = logits.clone()
    greedy = SamplingParams(temperature=0, repetition_penalty=2.0)
    assert sample(logits, [SamplingRow(greedy, [1, 1, 2], 0)]) == [3]
    assert torch.equal(logits, before)
    params = SamplingParams(repetition_penalty=2.0)
    expected = torch.softmax(torch.tensor([1.0, 2.0, -2.0, 3.0]), 0)
    torch.testing.assert_close(frequencies(logits[0], params, [1, 2, 1]), expected, atol=0.03, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_logits(dtype: torch.dtype) -> None:
    logits = torch.tensor([[0.0, 60.0, 0.0], [60.0, 0.0, 0.0]], dtype=dtype)
    for params in (SamplingParams(), SamplingParams(top_p=0.5), SamplingParams(temperature=0)):
        assert sample(logits, rows(params, 2)) == [1, 0]


def test_extreme_temperatures() -> None:
    logits = torch.tensor([[1e4, -1e4, 9e3, 0.0]])
    for temperature in (1e-30, 1e-3):
        assert sample(logits, rows(SamplingParams(temperature=temperature), 1)) == [0]
    drawn = sample(logits.expand(500, -1) / 1e4, rows(SamplingParams(temperature=1000, top_p=0.999), 500))
    assert set(drawn) == {0, 1, 2, 3}


def test_draw_next_to_one_stays_inside_the_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_torch, "philox_64", lambda *_: (1 << 64) - 1)
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0]])
    assert sample(logits, rows(SamplingParams(), 1)) == [3]
    assert sample(logits, rows(SamplingParams(top_k=2), 1)) == [1]
    assert sample(logits, rows(SamplingParams(top_p=0.5), 1)) == [0]


# --- the whole range of what is allowed -----------------------------------------------------------------


def near_the_ends(low: float, high: float) -> st.SearchStrategy[float]:
    """Any number of a range, its ends and those beside them and beside 0 more often than others."""
    special = {low, high, math.nextafter(low, high), math.nextafter(high, low), 0.0, 5e-324, 1e-38, 1.0}
    return st.sampled_from(sorted(x for x in special if low <= x <= high)) | st.floats(low, high)


PARAMS = st.builds(
    SamplingParams,
    temperature=near_the_ends(0, 1000),
    top_p=near_the_ends(0, 1).filter(lambda top_p: top_p > 0),
    top_k=st.sampled_from([-1, 0, 1, 255, 256, 257, 2**31 - 1]) | st.integers(-1, 2**31 - 1),
    min_p=near_the_ends(0, 1),
    repetition_penalty=near_the_ends(0.01, 100),
    presence_penalty=near_the_ends(-2, 2),
    frequency_penalty=near_the_ends(-2, 2),
)
SEEDS = st.sampled_from([-(2**63), -1, 0, 2**63, 2**64 - 1]) | st.integers(-(2**63), 2**64 - 1)
LOGITS = st.sampled_from([-math.inf, -6e4, -1.0, 0.0, 1.0, 6e4]) | st.floats(-6e4, 6e4, width=32)


@st.composite
def batches(draw: st.DrawFn) -> tuple[torch.Tensor, list[SamplingRow]]:
    vocab_size = draw(st.sampled_from([1, 2, 255, 256, 257, 600]))
    few = draw(st.lists(LOGITS, min_size=1, max_size=8))
    dtype = draw(st.sampled_from([torch.float32, torch.float16, torch.bfloat16]))
    logits = torch.tensor(few).repeat(vocab_size)[:vocab_size].to(dtype)
    tokens = st.lists(st.integers(0, vocab_size - 1), min_size=1, max_size=6)
    each = st.builds(SamplingRow, PARAMS, tokens, SEEDS, st.integers(0, 3))
    chosen = draw(st.lists(each, min_size=1, max_size=4))
    return torch.stack([logits.roll(i) for i in range(len(chosen))]), chosen


@given(batches())
@settings(max_examples=150, deadline=None)
def test_no_allowed_setting_raises_or_draws_what_has_no_chance(
    batch: tuple[torch.Tensor, list[SamplingRow]],
) -> None:
    """And none changes what its neighbours draw."""
    logits, chosen = batch
    drawn = sample(logits, chosen)
    for i, token_id in enumerate(drawn):
        assert 0 <= token_id < logits.shape[1]
        assert logits[i, token_id] > -math.inf or bool((logits[i] == -math.inf).all())
        assert sample(logits[i : i + 1], chosen[i : i + 1]) == [token_id]


@given(PARAMS, SEEDS)
@settings(max_examples=150, deadline=None)
def test_every_allowed_setting_is_a_row_of_finite_numbers(params: SamplingParams, seed: int) -> None:
    [packed] = unpack_rows(pack_rows(op_rows([SamplingRow(params, [0], seed, 0)])))
    numbers = [getattr(packed, field.name) for field in fields(packed)]
    assert all(math.isfinite(number) for number in numbers)
    assert min(packed.repetition_penalty, packed.reciprocal_penalty) > 0
    assert (packed.scale == 0) == params.greedy


def test_on_a_cpu_one_thread_draws_and_the_others_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would wait for each other longer than each of them works."""
    before, seen, draw = torch.get_num_threads(), [], sampler.op.sample
    monkeypatch.setattr(sampler.op, "sample", lambda *args: (seen.append(torch.get_num_threads()), draw(*args))[1])
    torch.set_num_threads(3)
    try:
        sample(torch.randn(2, 50), rows(SamplingParams(temperature=1.0), 2))
        assert (seen, torch.get_num_threads()) == ([1], 3)
        monkeypatch.setattr(sampler.op, "sample", lambda *_: seen[9])
        with pytest.raises(IndexError):
            sample(torch.randn(2, 50), rows(SamplingParams(temperature=1.0), 2))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("choice", "kinds"),
    [
        ("greedy", [{"temperature": 0}]),
        ("greedy", [{"temperature": 0, "top_k": 5000}, {"temperature": 0}]),
        ("shortlist", [{"top_k": 20}, {"temperature": 0}, {"top_k": MAX_TOP_K, "top_p": 0.5, "min_p": 0.1}]),
        ("shortlist", [{"temperature": 0, "repetition_penalty": 1.1}]),
        ("shortlist", [{"top_k": 1, "repetition_penalty": 2, "presence_penalty": 1, "frequency_penalty": 1}]),
        ("drawn", [{"top_k": 20}, {}]),
        ("drawn", [{"top_k": MAX_TOP_K + 1}]),
        ("drawn", [{"top_p": 0.9}]),
        ("drawn", [{"min_p": 0.1}]),
        # What is made more likely may be any token.
        ("drawn", [{"top_k": 5, "repetition_penalty": 0.9}]),
        ("drawn", [{"temperature": 0, "presence_penalty": -0.1}]),
        ("drawn", [{"top_k": 5, "frequency_penalty": -0.1}]),
    ],
)
def test_a_batch_draws_from_few_where_all_its_sequences_do(choice: str, kinds: list[dict[str, float]]) -> None:
    sequences = []
    for number, kind in enumerate(kinds):
        sequence = Sequence(number)
        sequence.sampling_params = SamplingParams(**kind)  # type: ignore[arg-type]
        sequences.append(sequence)
    assert choice_for(sequences) == choice

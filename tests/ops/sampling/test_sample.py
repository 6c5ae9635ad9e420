import itertools
import math
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pagedchat.ops.sampling.kernels import MAX_VOCAB_SIZE
from pagedchat.ops.sampling.philox import philox_64
from pagedchat.ops.sampling.sample import sample
from pagedchat.ops.sampling.sample_rows import IN_PROMPT, SampleRow, pack_rows, unpack_rows
from pagedchat.ops.sampling.token_weight import token_keys, token_weights
from tests.ops.paged_case import DEVICES

DTYPES = [torch.float16, torch.bfloat16, torch.float32]
VOCAB_SIZES = [1, 2, 17, 1003, 50257, 50272]
KINDS = [
    SampleRow(),
    SampleRow(temperature=0),
    SampleRow(temperature=0.3),
    SampleRow(temperature=3.0, min_p=0.01),
    SampleRow(top_k=1),
    SampleRow(top_k=50),
    SampleRow(top_p=0.9),
    SampleRow(top_p=0.001),
    SampleRow(top_k=40, top_p=0.8),
    SampleRow(top_k=3000, top_p=0.99, min_p=0.0001),
    SampleRow(repetition_penalty=1.3, counts_row=0),
    SampleRow(repetition_penalty=0.8, presence_penalty=0.5, frequency_penalty=0.2, top_p=0.9, counts_row=1),
    SampleRow(temperature=0, repetition_penalty=1.5, counts_row=1),
]


def drawn(
    logits: torch.Tensor, rows: list[SampleRow], positions: list[int], counts: torch.Tensor | None = None
) -> list[int]:
    """Tokens for rows of logits on their device."""
    device = logits.device
    where = torch.tensor(positions, dtype=torch.int32, device=device)
    token_ids: list[int] = sample(logits, pack_rows(rows).to(device), where, counts).tolist()
    return token_ids


def many(logits: torch.Tensor, row: SampleRow, count: int) -> torch.Tensor:
    """How often each token comes at `count` positions: `[vocab_size]`, on the CPU."""
    found = drawn(logits.expand(count, -1), [row] * count, list(range(count)))
    return torch.bincount(torch.tensor(found), minlength=len(logits))


def allowed(logits: torch.Tensor, row: SampleRow) -> list[int]:
    """Tokens that the filters leave, by definition, in float64; of equals the lowest ids first."""
    scaled = logits.double() / row.temperature
    best = float(scaled.max())
    order = [i for i in range(len(logits)) if float(scaled[i]) - best >= math.log(row.min_p or 1e-300)]
    order.sort(key=lambda i: (-float(scaled[i]), i))
    order = order[: row.top_k or None]
    shares = torch.softmax(scaled[order], 0)
    return [token for i, token in enumerate(order) if float(shares[:i].sum()) < row.top_p - 1e-9]


def chi_square(found: torch.Tensor, shares: torch.Tensor) -> float:
    """In standard deviations from what it should be, tokens of few draws taken together."""
    expected = shares * found.sum()
    common = expected >= 5
    cells = [(found[common].double(), expected[common])]
    if float(expected[~common].sum()) > 0:
        cells.append((found[~common].sum().double()[None], expected[~common].sum()[None]))
    observed, wanted = (torch.cat(parts) for parts in zip(*cells, strict=True))
    freedom = max(1, len(wanted) - 1)
    return (float(((observed - wanted) ** 2 / wanted).sum()) - freedom) / math.sqrt(2 * freedom)


def mixed_batch(vocab_size: int, dtype: torch.dtype) -> tuple[torch.Tensor, list[SampleRow], torch.Tensor]:
    """Every kind of row over logits with ties, a ruled out third, equal and one-hot ones; counts for penalties."""
    generator = torch.Generator().manual_seed(vocab_size)
    logits = 3 * torch.randn(5 * len(KINDS), vocab_size, generator=generator)
    logits[13:26] = (logits[13:26] * 2).round() / 2
    logits[26:39, ::3] = -math.inf
    logits[39:52] = 1.0
    logits[52:] = -math.inf
    logits[52:, vocab_size // 2] = 1.0
    counts = torch.randint(0, 3, (2, vocab_size), generator=generator, dtype=torch.int16)
    counts[:, ::5] += IN_PROMPT
    counts[:, vocab_size // 3 :] = 0
    rows = [replace(kind, seed=7919 * i) for i, kind in enumerate(KINDS * 5)]
    return logits.to(dtype), rows, counts


def test_random_numbers_are_those_of_the_paper() -> None:
    """Known answers of the authors' Random123 library."""
    assert philox_64(0, 0) == 0xE169C58D6627E8D5
    assert philox_64(-1, 5) == philox_64((1 << 64) - 1, 5)


@pytest.mark.parametrize("temperature", [0.7, 1.0, 4.0])
def test_weights_are_in_proportion_to_probabilities(temperature: float) -> None:
    logits = 4 * torch.randn(20_000, generator=torch.Generator().manual_seed(1))
    scale = unpack_rows(pack_rows([SampleRow(temperature=temperature)]))[0].scale
    weights = token_weights(token_keys(logits, logits.max(), scale))
    assert float(weights.max()) == 2**30
    assert torch.equal(weights, weights.round())
    wanted = torch.exp((logits.double() - logits.max().double()) / temperature) * 2**30
    torch.testing.assert_close(weights.double(), wanted, rtol=4e-6, atol=0.501)


def test_weights_grow_with_the_keys() -> None:
    weights = token_weights(torch.arange(0, (31 << 18) + 1, dtype=torch.int32))
    assert bool((weights.diff() >= 0).all())
    assert float(weights[0]) == 0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "row",
    [
        SampleRow(seed=1),
        SampleRow(temperature=0.5, seed=2),
        SampleRow(top_k=20, seed=3),
        SampleRow(top_p=0.7, seed=4),
        SampleRow(temperature=2.0, top_k=100, top_p=0.9, seed=5),
        SampleRow(min_p=0.1, seed=6),
    ],
    ids=["plain", "cold", "top-k", "top-p", "hot, top-k, top-p", "min-p"],
)
def test_draws_follow_the_distribution(row: SampleRow, dtype: torch.dtype, device: str) -> None:
    logits = (2 * torch.randn(300, generator=torch.Generator().manual_seed(8))).to(dtype)
    kept = allowed(logits, row)
    shares = torch.zeros(300, dtype=torch.float64)
    shares[kept] = torch.softmax(logits[kept].double() / row.temperature, 0)
    found = many(logits.to(device), row, 2000)
    assert not bool(found[shares == 0].any())
    assert abs(chi_square(found, shares)) < 4


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("top_k", [1, 2, 5, 16, 63])
def test_exactly_the_first_tokens_stay(top_k: int, device: str) -> None:
    """Half of them tie with others: those with the lowest ids stay."""
    order = torch.randperm(64, generator=torch.Generator().manual_seed(top_k))
    logits = torch.cat([torch.linspace(0, 1, 32), torch.full((32,), 0.5)])[order]
    for row in (SampleRow(top_k=top_k), SampleRow(top_p=top_k / 64), SampleRow(top_k=top_k, top_p=0.5)):
        assert set(many(logits.to(device), row, 800).nonzero()[:, 0].tolist()) == set(allowed(logits, row))


@pytest.mark.parametrize("device", DEVICES)
def test_greedy_takes_the_first_of_equals(device: str) -> None:
    logits = torch.zeros(3, 50_000, device=device)
    logits[0, [777, 30_000]] = 1.0
    logits[1] = -math.inf
    logits[2, 49_999] = math.inf
    greedy = SampleRow(temperature=0)
    assert drawn(logits, [greedy] * 3, [0] * 3) == [777, 0, 49_999]
    assert drawn(logits[1:], [SampleRow(), SampleRow(top_k=3, top_p=0.5)], [0, 0]) == [0, 49_999]


@pytest.mark.parametrize("device", DEVICES)
def test_ruled_out_tokens_are_never_drawn(device: str) -> None:
    logits = torch.full((200, 999), -math.inf, device=device)
    logits[:, 500:503] = torch.tensor([1.0, 2.0, 1.0], device=device)
    rows = [SampleRow(seed=i, top_k=5 if i % 2 else 0, top_p=1.0 if i % 3 else 0.99) for i in range(200)]
    assert set(drawn(logits, rows, [0] * 200)) == {500, 501, 502}
    logits[:, 501:503] = -math.inf
    assert drawn(logits, rows, [0] * 200) == [500] * 200


@pytest.mark.parametrize("device", DEVICES)
def test_extreme_temperatures(device: str) -> None:
    logits = torch.tensor([[1e4, -1e4, 9e3, 0.0]], device=device)
    for temperature in (1e-45, 1e-30, 1e-3):
        assert drawn(logits, [SampleRow(temperature=temperature)], [0]) == [0]
    assert set(many(logits[0], SampleRow(temperature=1e9, top_p=0.999), 300).nonzero()[:, 0].tolist()) == {
        0,
        1,
        2,
        3,
    }
    assert many(logits[0], SampleRow(temperature=1e300), 400).min() > 60


@pytest.mark.parametrize("device", DEVICES)
def test_penalties_by_definition(device: str) -> None:
    logits = torch.tensor([[2.0, 2.0, -1.0, 3.0, 0.5]], device=device)
    counts = torch.tensor([[0, IN_PROMPT, IN_PROMPT + 2, 1, 3]], dtype=torch.int16, device=device)
    row = SampleRow(repetition_penalty=2.0, presence_penalty=0.25, frequency_penalty=0.5, counts_row=0)
    wanted = torch.softmax(torch.tensor([2.0, 1.0, -3.25, 0.75, -1.5], dtype=torch.float64), 0)
    found = drawn(logits.expand(4000, -1), [row] * 4000, list(range(4000)), counts)
    assert abs(chi_square(torch.bincount(torch.tensor(found), minlength=5), wanted)) < 4
    assert drawn(logits, [replace(row, temperature=0)], [0], counts) == [0]
    assert drawn(logits, [replace(row, temperature=0, counts_row=-1)], [0], counts) == [3]


LARGE_KINDS = [
    SampleRow(seed=11),
    SampleRow(top_p=0.5, seed=12),
    SampleRow(top_k=700_000, top_p=0.999, seed=13),
    SampleRow(min_p=0.5, top_p=0.75, seed=14),
    SampleRow(temperature=0),
]


def large_batch(vocab_size: int, dtype: torch.dtype) -> torch.Tensor:
    """Rows with very much mass on few keys, so that sums grow as large as they can: all equal, two values, nearly
    all in one half; `[4, vocab_size]`. They do not begin at 16 bytes."""
    logits = torch.zeros(4, vocab_size + 3, dtype=dtype)[:, 3:]
    logits[1, ::2] = -0.5
    logits[2, : vocab_size // 2] = -torch.inf
    logits[3] = torch.randn(vocab_size, generator=torch.Generator().manual_seed(vocab_size)).to(dtype) / 100
    return logits


def of_every_large_kind(logits: torch.Tensor, repeats: int = 1) -> list[list[int]]:
    """What every row of `logits` gives by every kind of `LARGE_KINDS`, `repeats` times side by side."""
    return [
        drawn(
            logits[i].expand(len(LARGE_KINDS) * repeats, -1),
            LARGE_KINDS * repeats,
            [5] * len(LARGE_KINDS) * repeats,
        )
        for i in range(len(logits))
    ]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("vocab_size", [262_144, 262_208, 1 << 20])
def test_equal_tokens_of_a_large_vocabulary_are_drawn_by_their_share(vocab_size: int, device: str) -> None:
    """The random number's place among them is the token, whatever the sums grow to."""
    logits = torch.zeros(1, vocab_size, dtype=torch.float16, device=device)
    for position in range(3):
        random = philox_64(9, position)
        for share in (1.0, 0.5):
            row = SampleRow(seed=9, top_p=share)
            assert drawn(logits, [row], [position]) == [random * int(vocab_size * share) >> 64]


@pytest.mark.parametrize("device", DEVICES)
def test_drawn_tokens_are_counted_if_asked_for(device: str) -> None:
    logits = torch.zeros(3, 40, device=device)
    logits[:, 7] = 50.0
    counts = torch.zeros(2, 40, dtype=torch.int16, device=device)
    counts[0, 7], counts[1, 7] = IN_PROMPT + 1, 32767
    rows = pack_rows([SampleRow(counts_row=0), SampleRow(counts_row=1, temperature=0), SampleRow()]).to(device)
    positions = torch.zeros(3, dtype=torch.int32, device=device)
    for count_drawn, wanted in ((False, IN_PROMPT + 1), (True, IN_PROMPT + 2)):
        assert sample(logits, rows, positions, counts, count_drawn=count_drawn).tolist() == [7, 7, 7]
        assert counts[:, 7].tolist() == [wanted, 32767]
        assert int((counts != 0).sum()) == 2


@pytest.mark.parametrize("device", DEVICES)
def test_result_does_not_depend_on_the_rest_of_the_batch(device: str) -> None:
    on_cpu = mixed_batch(1003, torch.float16)
    logits, rows, counts = on_cpu[0].to(device), on_cpu[1], on_cpu[2].to(device)
    positions = list(range(len(rows)))
    together = drawn(logits, rows, positions, counts)
    alone = [drawn(logits[i : i + 1], [row], [i], counts)[0] for i, row in enumerate(rows)]
    assert together == alone
    assert drawn(logits.flip(0), rows[::-1], positions[::-1], counts) == alone[::-1]


def test_seed_and_position_decide() -> None:
    found = {
        drawn(torch.zeros(1, 100_000), [SampleRow(seed=seed)], [position])[0]
        for seed, position in itertools.product((0, 1, 1 << 40, -1), (0, 1, 4000))
    }
    assert len(found) == 12


@given(st.lists(st.floats(-30, 30, width=16), min_size=1, max_size=40), st.integers(0, 45), st.integers(1, 256))
def test_kept_tokens_in_whole_numbers(values: list[float], top_k: int, share: int) -> None:
    """A token is drawn only if it belongs to the smallest set that has the share of what top-k leaves."""
    logits = torch.tensor(values)
    keys = token_keys(logits, logits.max(), unpack_rows(pack_rows([SampleRow()]))[0].scale)
    weights = token_weights(keys).long().tolist()
    order = sorted(range(len(values)), key=lambda i: (-int(keys[i]), i))[: top_k or None]
    needed = Fraction(share, 256) * sum(weights[i] for i in order)
    kept = {token for i, token in enumerate(order) if sum(weights[t] for t in order[:i]) < needed}
    rows = [SampleRow(seed=i, top_k=top_k, top_p=share / 256) for i in range(20)]
    assert set(drawn(logits.expand(20, -1), rows, [0] * 20)) <= kept


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("vocab_size", [*VOCAB_SIZES, 151_936])
def test_gpu_draws_what_the_cpu_draws(vocab_size: int, dtype: torch.dtype) -> None:
    logits, rows, counts = mixed_batch(vocab_size, dtype)
    positions = list(range(len(rows)))
    wanted = drawn(logits, rows, positions, counts)
    for batch in (slice(None), slice(0, 26), slice(26, 52)):  # thread blocks by themselves, and in clusters
        assert drawn(logits[batch].cuda(), rows[batch], positions[batch], counts.cuda()) == wanted[batch]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("vocab_size", [262_144, 262_208, 524_289, 1 << 20])
def test_gpu_draws_what_the_cpu_draws_from_a_large_vocabulary(vocab_size: int, dtype: torch.dtype) -> None:
    logits = large_batch(vocab_size, dtype)
    wanted = of_every_large_kind(logits)
    for repeats in (1, 8, 30):  # 8, 2 and 1 thread blocks to a row
        assert of_every_large_kind(logits.cuda(), repeats) == [row * repeats for row in wanted]


@pytest.mark.gpu
def test_captured_in_a_graph() -> None:
    logits, rows, counts = mixed_batch(1003, torch.float16)
    x, packed, on_gpu = logits.cuda(), pack_rows(rows).cuda(), counts.cuda()
    positions = torch.zeros(len(rows), dtype=torch.int32, device="cuda")
    output = torch.empty_like(positions)
    sample(x, packed, positions, on_gpu, output=output)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        sample(x, packed, positions, on_gpu, output=output)
    positions += 5
    x.copy_(logits.flip(0))
    graph.replay()
    assert output.tolist() == drawn(logits.flip(0), rows, [5] * len(rows), counts)


@pytest.mark.parametrize("device", DEVICES)
def test_nothing_to_draw(device: str) -> None:
    assert drawn(torch.zeros(0, 50, device=device), [], []) == []


def test_wrong_arguments_are_named() -> None:
    logits, rows, positions = torch.zeros(2, 9), pack_rows([SampleRow()] * 2), torch.zeros(2, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"rows has shape \[1, 12\], expected \[2, 12\]"):
        sample(logits, rows[:1], positions)
    with pytest.raises(ValueError, match=r"positions is torch\.int64, expected torch\.int32"):
        sample(logits, rows, positions.long())
    with pytest.raises(ValueError, match=r"counts has shape \[1, 8\], expected \[\*, 9\]"):
        sample(logits, rows, positions, torch.zeros(1, 8, dtype=torch.int16))
    with pytest.raises(ValueError, match="rows is on meta, expected it on cpu and contiguous"):
        sample(logits, rows.to("meta"), positions)
    with pytest.raises(ValueError, match=rf"logits has {MAX_VOCAB_SIZE + 1} tokens to a row, expected at most"):
        sample(torch.empty(1, MAX_VOCAB_SIZE + 1, dtype=torch.float16), rows[:1], positions[:1])
    with pytest.raises(ValueError, match="logits has stride 2 between tokens, expected 1"):
        sample(torch.zeros(9, 2).T, rows, positions)
    with pytest.raises(ValueError, match=r"element type is torch\.float64"):
        sample(logits.double(), rows, positions)

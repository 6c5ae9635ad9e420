"""Tokens drawn without logits: those that are drawn from all of them."""

import pytest
import torch

from pagedchat.ops.common.norm import Norm
from pagedchat.ops.sampling.sample_rows import SampleRow, pack_rows
from pagedchat.ops.screening.screen import screen_of
from pagedchat.ops.screening.screened_draw import screened_draw
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import DTYPES, normal
from tests.ops.sampling.decode_state_case import make_state
from tests.ops.screening.screened_draw_case import KINDS, DrawCase, draw_case


def check_draws(case: DrawCase) -> None:
    """The same tokens as from all logits, counted and written down likewise."""
    state, counts = case.state(), case.counts.clone()
    screened_draw(state, case.rows, screen_of(case.head), case.sampling, counts)
    expected, expected_counts = case.expected()
    for name in ("token_ids", "positions", "seq_lens", "history", "step"):
        assert torch.equal(getattr(state, name).cpu(), getattr(expected, name)), name
    assert torch.equal(counts.cpu(), expected_counts)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("num_seqs", [1, 3, 8, 9, 17, 33, 64])
@pytest.mark.parametrize(("vocab_size", "hidden"), [(1003, 200), (50_272, 896), (32_000, 2048)])
def test_tokens_are_those_drawn_from_all_logits(
    vocab_size: int, hidden: int, num_seqs: int, dtype: torch.dtype, device: str
) -> None:
    if device == "cpu" and vocab_size > 2000:
        pytest.skip("torch's own product, for which one size does")
    check_draws(draw_case(num_seqs, vocab_size, hidden, dtype, device))


@pytest.mark.parametrize("device", DEVICES)
def test_each_kind_of_row_is_drawn_by_itself(device: str) -> None:
    for kind in KINDS:
        check_draws(draw_case(1, 5000, 256, torch.float16, device, rows=[kind]))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("most", [0, 1])
def test_of_equals_the_first_ones_stay(most: int, device: str) -> None:
    """Of rows of zeros all tokens are equal; of others with few values many are."""
    check_draws(draw_case(9, 3000, 128, torch.float16, device, most=most))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "row", [SampleRow(seed=4), SampleRow(top_p=0.3), SampleRow(top_k=700), SampleRow(temperature=1e6, top_k=30)]
)
def test_rows_that_few_do_not_do_for_are_drawn_from_all(row: SampleRow, device: str) -> None:
    check_draws(draw_case(3, 1000, 128, torch.float16, device, rows=[row] * 3))


@pytest.mark.parametrize("device", DEVICES)
def test_many_draws_go_as_logits_say(device: str) -> None:
    rows = [SampleRow(temperature=0.9, top_k=64, seed=i) for i in range(64)]
    case = draw_case(64, 2000, 128, torch.bfloat16, device, rows=rows)
    check_draws(case._replace(positions=list(range(64))))


@pytest.mark.parametrize("device", DEVICES)
def test_rows_are_normed_first(device: str) -> None:
    head = normal(5000, 328, device=device, dtype=torch.float16, scale=0.05)
    rows = normal(5, 328, device=device, dtype=torch.float16, scale=3.0)
    norm = Norm("rms", normal(328, device=device, dtype=torch.float16), None, 1e-5)
    state = make_state([1, 2, 3, 4, 5], device)
    screened_draw(state, rows, screen_of(head), pack_rows([SampleRow(top_k=3)] * 5).to(device), norm=norm)
    logits = norm.apply(rows).double() @ head.double().T
    third = logits.topk(3).values[:, -1]
    drawn = logits.gather(1, state.token_ids.long()[:, None])[:, 0]
    assert (drawn >= third - third.abs() * 2e-3).all()


@pytest.mark.parametrize("device", DEVICES)
def test_rows_that_stay_are_left_to_others(device: str) -> None:
    check_draws(draw_case(3, 1000, 128, torch.float16, device, rows=[KINDS[0], SampleRow(stays=True), KINDS[1]]))


def test_what_does_not_go_together_is_refused() -> None:
    case = draw_case(2, 300, 128, torch.float16, "cpu")
    screen = screen_of(case.head)
    with pytest.raises(ValueError, match=r"rows has shape \[1, 128\], expected \[2, 128\]"):
        screened_draw(case.state(), case.rows[:1], screen, case.sampling)
    with pytest.raises(ValueError, match=r"sampling has shape \[1, "):
        screened_draw(case.state(), case.rows, screen, case.sampling[:1])
    with pytest.raises(ValueError, match=r"sampling is torch\.int64"):
        screened_draw(case.state(), case.rows, screen, case.sampling.long())
    with pytest.raises(ValueError, match=r"counts has shape \[2, 299\]"):
        screened_draw(case.state(), case.rows, screen, case.sampling, case.counts[:, 1:])

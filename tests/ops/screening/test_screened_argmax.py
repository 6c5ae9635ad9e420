"""Tokens without logits: those that logits say, wherever they say it clearly, and the first of equals."""

import pytest
import torch

from pagedchat.ops.common.norm import Norm
from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.ops.screening.screen import screen_of
from pagedchat.ops.screening.screened_argmax import screened_argmax
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import DTYPES, normal
from tests.ops.sampling.decode_state_case import check_moved_on, make_state

ROUNDING = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}


def tokens_of(state: DecodeState) -> list[int]:
    return [int(each) for each in state.token_ids.tolist()]


def shortfalls(rows: torch.Tensor, head: torch.Tensor, tokens: list[int]) -> torch.Tensor:
    """How far each token's logit is below the highest one, in float64."""
    logits = rows.double() @ head.double().T
    return logits.amax(dim=1) - logits[range(len(rows)), tokens]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("num_seqs", [1, 3, 8, 9, 16, 17, 32, 33, 64])
@pytest.mark.parametrize(("vocab_size", "hidden"), [(1003, 200), (50_272, 896), (32_000, 4096)])
def test_tokens_have_the_highest_logits(
    vocab_size: int, hidden: int, num_seqs: int, dtype: torch.dtype, device: str
) -> None:
    if device == "cpu" and vocab_size > 2000:
        pytest.skip("torch's own product, for which one size does")
    head = normal(vocab_size, hidden, device=device, dtype=dtype, scale=hidden**-0.5)
    rows = normal(num_seqs, hidden, device=device, dtype=dtype)
    positions = [5 * i for i in range(num_seqs)]
    state = make_state(positions, device)
    screened_argmax(state, rows, screen_of(head))
    tokens = tokens_of(state)
    highest = (rows.double() @ head.double().T).amax(dim=1)
    assert (shortfalls(rows, head, tokens) <= highest.abs() * ROUNDING[dtype]).all()
    check_moved_on(state, positions, tokens)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["rms", "exact", "one more", "layer"])
def test_rows_are_normed_as_the_norm_says(kind: str, device: str) -> None:
    head = normal(5000, 328, device=device, dtype=torch.float16, scale=0.05)
    rows = normal(5, 328, device=device, dtype=torch.float16, scale=3.0)
    weight = normal(328, device=device, dtype=torch.float16)
    norm = Norm(
        "layer" if kind == "layer" else "rms",
        weight,
        weight.flip(0).contiguous() if kind == "layer" else None,
        1e-5,
        exact=kind in ("exact", "one more"),
        one_more=kind == "one more",
    )
    state = make_state([1, 2, 3, 4, 5], device)
    screened_argmax(state, rows, screen_of(head), norm=norm)
    normed = norm.apply(rows)
    highest = (normed.double() @ head.double().T).amax(dim=1)
    assert (shortfalls(normed, head, tokens_of(state)) <= highest.abs() * 2e-3).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_first_of_equals_is_taken(dtype: torch.dtype, device: str) -> None:
    head = normal(3000, 256, device=device, dtype=dtype)
    rows = normal(2, 256, device=device, dtype=dtype)
    for row, places in ((0, (2999, 70, 1200)), (1, (128, 65, 66, 2000))):
        for place in places:
            head[place] = 2 * rows[row]
    state = make_state([0, 0], device)
    screened_argmax(state, rows, screen_of(head))
    assert tokens_of(state) == [70, 65]


@pytest.mark.parametrize("device", DEVICES)
def test_rows_that_say_nothing_and_padding_have_a_token_too(device: str) -> None:
    head = normal(700, 128, device=device, dtype=torch.float16)
    rows = normal(6, 128, device=device, dtype=torch.float16)
    rows[0] = 0  # all logits are equal
    rows[1, 5] = 60_000  # an outlier, beside which digits of all others are zero
    head[:, 5] *= 1e-4
    rows[3:5] = torch.nan  # of padding, and of a chat: no logit is more than another
    positions = [3, 0, -1, -1, 7, 9]
    state = make_state(positions, device)
    screened_argmax(state, rows, screen_of(head))
    tokens = tokens_of(state)
    highest = (rows.double() @ head.double().T).amax(dim=1)
    assert (shortfalls(rows, head, tokens) <= highest.abs() * 2e-3)[[1, 5]].all()
    check_moved_on(state, positions, [0, tokens[1], 0, 0, 0, tokens[5]])


@pytest.mark.parametrize("device", DEVICES)
def test_rows_beyond_all_measure_are_multiplied_as_they_are(device: str) -> None:
    head = normal(300, 128, device=device, dtype=torch.bfloat16)
    head[37], head[210] = 1e30, -1e30
    rows = normal(3, 128, device=device, dtype=torch.bfloat16).abs()
    rows[1] *= -1
    state = make_state([0, 0, 0], device)
    screened_argmax(state, rows, screen_of(head))
    assert tokens_of(state) == [37, 210, 37]


def test_what_does_not_go_together_is_refused() -> None:
    head = normal(300, 128, device="cpu", dtype=torch.float16)
    screen, state = screen_of(head), make_state([0], "cpu")
    with pytest.raises(ValueError, match=r"rows has shape \[2, 128\], expected \[1, 128\]"):
        screened_argmax(state, head[:2], screen)
    with pytest.raises(ValueError, match=r"rows is torch\.float32"):
        screened_argmax(state, head[:1].float(), screen)
    with pytest.raises(ValueError, match=r"norm\.weight has shape \[64\]"):
        screened_argmax(state, head[:1], screen, norm=Norm("rms", head[0, :64], None, 1e-5))

import pytest
import torch

from pagedchat.ops.products.next_token import logits_argmax
from tests.ops.paged_case import DEVICES
from tests.ops.products.few_bits_case import FORMS, exact_weight, in_form
from tests.ops.products.small_batch_case import DTYPES, WIDTHS, allowed, error, exact_norm, make_norm, normal
from tests.ops.sampling.decode_state_case import check_moved_on, make_state


def check(
    num_tokens: int, width: int, norm_kind: str | None, dtype: torch.dtype, device: str, form: str | None = None
) -> None:
    # No whole tiles; from a width of 2048 on the weight streams through shared memory, as few bits always do.
    vocab_size = 2056 if form is not None and "," in form else 2051
    rows = normal(num_tokens, width, device=device, dtype=dtype)
    weight = in_form(normal(vocab_size, width, device=device, dtype=dtype, scale=width**-0.5), form)
    norm = make_norm(norm_kind, width, device, dtype)
    positions = [7] * num_tokens
    positions[-1] = -1
    state = make_state(positions, device)
    logits = torch.full((num_tokens, vocab_size), float("nan"), dtype=dtype, device=device)
    best = torch.zeros(num_tokens, dtype=torch.int64, device=device)
    logits_argmax(state, logits, rows, weight, norm=norm, best=best)
    wanted = exact_norm(norm, rows.cpu().double()) @ exact_weight(weight).T
    assert error(logits, wanted) < allowed(dtype)
    check_moved_on(state, positions, logits.cpu().float().max(dim=1).indices.tolist())
    assert not bool(best.any())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("norm_kind", [None, "layer", "rms"])
def test_last_product_and_next_tokens(norm_kind: str | None, dtype: torch.dtype, device: str) -> None:
    for width in WIDTHS if device == "cuda" else [768]:
        for num_tokens in [1, 5, 8, 12, 32]:
            check(num_tokens, width, norm_kind, dtype, device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_weights_of_few_bits(form: str, dtype: torch.dtype, device: str) -> None:
    for width in (512, 2048, 4096) if device == "cuda" else (256,):
        for num_tokens in (1, 5, 8) if device == "cuda" else (3,):
            check(num_tokens, width, "rms", dtype, device, form)
    if form == "int8":
        check(3, 256, None, dtype, device, form)

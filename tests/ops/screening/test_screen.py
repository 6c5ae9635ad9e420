"""The copy of a vocabulary: where kernels look for it, and that bounds hold."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pagedchat.ops.screening.integers import integers_of
from pagedchat.ops.screening.plan import CHUNK, UNIT_ROWS, num_chunks, num_units, screen_bytes
from pagedchat.ops.screening.screen import screen_of
from tests.ops.products.small_batch_case import normal


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("vocab_size", "hidden"), [(200, 128), (5000, 328), (64, 8)])
def test_every_element_lies_where_kernels_look_for_it(vocab_size: int, hidden: int, dtype: torch.dtype) -> None:
    head = normal(vocab_size, hidden, device="cpu", dtype=dtype)
    screen, (integers, scales, widths) = screen_of(head), integers_of(head)
    assert screen.units.shape == (num_units(vocab_size), num_chunks(hidden), UNIT_ROWS, CHUNK)
    flat = screen.units.flatten()
    for row in {0, 7, vocab_size // 2, vocab_size - 1}:
        for column in {0, 5, hidden // 3, hidden - 1}:
            unit, of_unit = divmod(row, UNIT_ROWS)
            chunk, of_chunk = divmod(column, CHUNK)
            piece, byte = divmod(of_chunk, 16)
            place = ((unit * num_chunks(hidden) + chunk) * UNIT_ROWS + of_unit) * CHUNK
            assert flat[place + (piece ^ of_unit % 8) * 16 + byte] == integers[row, column]
    bounds = screen.rows.flatten(0, 1)
    assert torch.equal(bounds[:vocab_size, 0], scales)
    assert torch.equal(bounds[:vocab_size, 1], widths)
    lengths = integers.double().norm(dim=1) * scales.double()
    assert (bounds[:vocab_size, 2] >= lengths).all()
    assert (bounds[:vocab_size, 2] <= lengths * 1.002).all()
    assert not bounds[vocab_size:].any()
    assert int(screen.units.count_nonzero()) == int(integers.count_nonzero())  # and zeros elsewhere
    assert screen.units.nbytes + screen.rows.nbytes == screen_bytes(vocab_size, hidden)


@given(seed=st.integers(0, 2**31), spread=st.sampled_from([1e-3, 1.0, 30.0]), outlier=st.sampled_from([1.0, 80.0]))
def test_no_product_is_further_off_than_the_width_says(seed: int, spread: float, outlier: float) -> None:
    of = torch.Generator().manual_seed(seed)
    head = (torch.randn(20, 96, generator=of) * spread).half()
    head[:, 3] *= outlier
    rows = torch.randn(5, 96, generator=of).double()
    integers, scales, widths = integers_of(head)
    exact = rows @ head.double().T
    rough = rows @ (integers.double() * scales.double()[:, None]).T
    assert ((exact - rough).abs() <= rows.norm(dim=1)[:, None] * widths.double()).all()

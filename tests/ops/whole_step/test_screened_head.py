"""The quantized head: no logit is further from what it says than its rows' widths allow."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pagedchat.ops.common.norm import Norm
from pagedchat.ops.screening.integers import integers_of
from pagedchat.ops.whole_step import screened_head
from pagedchat.ops.whole_step.plan import QUANTIZED_ROWS, quantized_tile_bytes
from pagedchat.ops.whole_step.screened_head import LARGEST_DIGITS, screen_head

DTYPES = [torch.float16, torch.bfloat16]
HIDDEN = 64


def random_rows(count: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, HIDDEN, generator=torch.Generator().manual_seed(seed)).to(dtype)


def unpacked(tiles: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Integers `[num_rows, HIDDEN]`, scales and widths `[num_rows]`, element by element as a lane finds them."""
    pieces = tiles[:, : QUANTIZED_ROWS * HIDDEN].contiguous().view(torch.int8)
    pieces = pieces.view(len(tiles), 2, HIDDEN // 32, 32, 4, 4)  # tile, 16 rows, step, lane, word, byte
    rows = torch.zeros(len(tiles), QUANTIZED_ROWS, HIDDEN, dtype=torch.int8)
    for group in range(2):
        for lane in range(32):
            for word in range(4):
                row, at = 16 * group + lane // 4 + 8 * (word % 2), 8 * (lane % 4) + 4 * (word // 2)
                for step in range(HIDDEN // 32):
                    rows[:, row, 32 * step + at : 32 * step + at + 4] = pieces[:, group, step, lane, word]
    constants = tiles[:, QUANTIZED_ROWS * HIDDEN :].contiguous().view(torch.bfloat16).view(-1, 2).float()
    return rows.flatten(0, 1), constants[:, 0], constants[:, 1]


@given(
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 1 << 30),
    spread=st.floats(0, 3),
    exponent=st.integers(-14, 10),
)
def test_no_product_is_further_off_than_the_width_allows(
    dtype: torch.dtype, seed: int, spread: float, exponent: int
) -> None:
    noise = torch.randn(2, 16, HIDDEN, generator=torch.Generator().manual_seed(seed)).double()
    rows = (noise[0] * (spread * noise[1]).exp() * 2.0**exponent).clamp(-6e4, 6e4).to(dtype)
    integers, scales, widths = integers_of(rows)
    rests = rows.double() - scales.double()[:, None] * integers.double()
    # The input that is the worst for each row, and others.
    inputs = torch.cat((rests, noise[1], rows.double()))
    off = (inputs @ rests.T).abs()
    assert bool((off <= widths.double() * inputs.norm(dim=1)[:, None]).all())
    assert bool((widths.double() <= 1.1 * rests.norm(dim=1) + 1e-4 * rows.double().norm(dim=1) + 1e-23).all())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_lie_as_lanes_multiply_them(dtype: torch.dtype) -> None:
    head, norm = random_rows(77, dtype), Norm("rms", torch.ones(HIDDEN).to(dtype), None, 1e-5)
    quantized = screen_head(head, norm)
    assert quantized.tiles.shape == (3, quantized_tile_bytes(HIDDEN))
    integers, scales, widths = integers_of(head)
    found = unpacked(quantized.tiles)
    assert torch.equal(found[0][:77], integers)
    assert torch.equal(found[1][:77] * quantized.digit_scale, scales)
    assert bool((found[2][:77] >= widths).all())
    assert bool((found[2][:77] <= widths * 1.01).all())
    assert [part[77:].count_nonzero() for part in found] == [0, 0, 0]


def test_a_quantized_head_made_in_pieces_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    head, norm = random_rows(150, torch.float16), Norm("rms", torch.ones(HIDDEN).half(), None, 1e-5)
    at_once = screen_head(head, norm).tiles
    monkeypatch.setattr(screened_head, "_ROWS_AT_A_TIME", 64)
    assert torch.equal(screen_head(head, norm).tiles, at_once)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e38])
def test_a_row_beyond_all_measure_may_be_anything(value: float) -> None:
    head = random_rows(3, torch.bfloat16)
    head[1, 5] = value
    integers, scales, widths = integers_of(head)
    assert widths.isinf().tolist() == [False, True, False]
    assert integers[1].count_nonzero() == scales[1] == 0


def test_rows_of_zeros_have_nothing_but_the_least_width() -> None:
    integers, scales, widths = integers_of(torch.zeros(2, HIDDEN).half())
    assert integers.count_nonzero() == scales.count_nonzero() == 0
    assert bool((widths > 0).all())
    assert bool((widths < 1e-23).all())


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_digits_have_room_for_what_a_norm_makes(scale: float) -> None:
    torch.manual_seed(1)
    norm = Norm("layer", (scale * torch.randn(HIDDEN)).half(), torch.randn(HIDDEN).half(), 1e-5)
    digit_scale = screen_head(random_rows(1, torch.float16), norm).digit_scale
    spike = torch.zeros(1, HIDDEN).half()
    spike[0, norm.weight.abs().argmax()] = 100.0
    lengths = [norm.apply(rows).double().norm(dim=1).max() for rows in (spike, random_rows(50, torch.float16))]
    assert max(lengths) * digit_scale <= LARGEST_DIGITS
    assert max(lengths) * digit_scale > LARGEST_DIGITS / 64

"""Screened vocabularies, as the op launches its three kernels."""

from functools import partial
from typing import Literal

import torch

from pagedchat.ops.common.norm import Norm
from pagedchat.ops.screening.screen import screen_of
from pagedchat.ops.screening.screened_argmax import screened_argmax
from pagedchat.ops.screening.screened_draw import screened_draw
from tests.ops.products.small_batch_case import normal
from tests.ops.sampling.decode_state_case import make_state
from tests.ops.screening.screened_draw_case import draw_case
from tests.tools.emulated_ops.op_case import BFLOAT, HALF, OpCase, Results
from tests.tools.emulated_ops.sampling import all_of


def screened(dtype: torch.dtype, num_seqs: int, *, norm: Literal["layer", "rms"] | None = None) -> Results:
    """Of a vocabulary and a width that are not whole units and chunks; the second row is padding."""
    rows = normal(num_seqs, 200, device="cpu", dtype=dtype)
    head = normal(1003, 200, device="cpu", dtype=dtype, scale=200**-0.5)
    of_rows = None
    if norm is not None:
        weight = normal(200, device="cpu", dtype=dtype)
        of_rows = Norm(norm, weight, weight.flip(0).contiguous() if norm == "layer" else None, 1e-5)
    state = make_state([3, -1, *range(num_seqs)][:num_seqs], "cpu")
    screened_argmax(state, rows, screen_of(head), norm=of_rows)
    return all_of(state)


def drawn(dtype: torch.dtype, num_seqs: int) -> Results:
    """Rows of all kinds, some of padding; what is drawn is counted."""
    case = draw_case(num_seqs, 1003, 200, dtype, "cpu")
    state, counts = case.state(), case.counts.clone()
    screened_draw(state, case.rows, screen_of(case.head), case.sampling.clone(), counts)
    return all_of(state) | {"counts": counts}


CASES = [
    OpCase("screen_rows", "one row, normed", partial(screened, HALF, 1, norm="rms")),
    OpCase("screen_rows", "of layers", partial(screened, BFLOAT, 9, norm="layer")),
    OpCase("screen_vocabulary", "32 columns", partial(screened, HALF, 20)),
    OpCase("screen_vocabulary", "64 columns", partial(screened, BFLOAT, 40)),
    OpCase("choose_screened", "8 columns", partial(screened, BFLOAT, 3)),
    OpCase("list_screened", "8 share a row", partial(drawn, HALF, 10)),
    OpCase("list_screened", "4 share a row", partial(drawn, BFLOAT, 18)),
    OpCase("list_screened", "2 share a row", partial(drawn, HALF, 33)),
]

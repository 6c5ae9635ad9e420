"""Sums over ranks, all of them in one launch."""

from functools import partial

import torch

from pagedchat.ops.ranks.reduce_add_norm import reduce_add_norm
from tests.ops.products.small_batch_case import make_norm, normal
from tests.ops.ranks.mailboxes_case import all_mailboxes
from tests.tools.emulated_ops.op_case import BFLOAT, HALF, SINGLE, OpCase, Results, in_types

WIDTH = 136
ROWS = (1, 3, 3, 1, 2, 3)
"""Of launches that follow each other: places are taken in turns, by each row for itself."""


def sums(
    dtype: torch.dtype, *, size: int, kind: str | None, first: str | None = None, hops: tuple[int, ...] = (1,)
) -> Results:
    """Streams that go on from launch to launch, and the sums alone of the same rows."""
    boxes, results = all_mailboxes(size), Results()
    norm, of_update = make_norm(kind, WIDTH, "cpu", dtype), make_norm(first, WIDTH, "cpu", dtype)
    for turn, num_rows in enumerate(ROWS):
        update = normal(size, num_rows, WIDTH, device="cpu", dtype=dtype, seed=turn)
        hidden = normal(num_rows, WIDTH, device="cpu", dtype=dtype).expand(size, -1, -1).contiguous()
        scale = 0.5 if first else 1.0
        way = hops[turn % len(hops)]
        normed = reduce_add_norm(
            update, hidden, norm, boxes.mailboxes, update_norm=of_update, scale=scale, hops=way
        )
        results |= {f"normed {turn}": normed, f"hidden {turn}": hidden}
        results[f"sum {turn}"] = reduce_add_norm(update, None, None, boxes.mailboxes, hops=way)
    assert boxes.are_empty
    return results


CASES: list[OpCase] = [
    *in_types("reduce_add_norm", partial(sums, size=2, kind="rms"), HALF, SINGLE, about="2 ranks"),
    *in_types("reduce_add_norm", partial(sums, size=4, kind="layer"), BFLOAT, about="4 ranks"),
    *in_types("reduce_add_norm", partial(sums, size=2, kind="rms", first="offset rms"), HALF, about="normed"),
    *in_types("reduce_add_norm", partial(sums, size=8, kind=None), HALF, about="no norm"),
    *in_types("reduce_add_norm", partial(sums, size=4, kind="rms", hops=(2, 1, 2)), HALF, about="two hops"),
    *in_types("reduce_add_norm", partial(sums, size=8, kind="rms", first="rms", hops=(2,)), SINGLE, about="of 8"),
]

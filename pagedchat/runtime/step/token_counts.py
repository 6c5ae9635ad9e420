"""How often tokens have occurred in sequences, as the sampling op's penalties go by it (`ops.sampling.sample`)."""

from collections import Counter
from collections.abc import Iterable
from itertools import chain

import torch

from pagedchat.ops.sampling.sample_rows import IN_PROMPT
from pagedchat.runtime.step.upload import int64, upload

_MOST = -IN_PROMPT - 1
"""Times that a count can hold."""

Counted = tuple[int, list[int], int]
"""A row of counts, the tokens of its sequence, and how many of them, from the first on, are the prompt."""


def write_counts(counts: torch.Tensor, rows: Iterable[Counted]) -> None:
    """Queue counting the tokens of some sequences anew; the host waits for nothing.

    Args:
        counts: `[num_rows, vocab_size]`, int16: the op's. Other rows stay as they are.
        rows: each row at most once.
    """
    vocab_size = counts.shape[1]
    of_row = {row: _occurrences(token_ids, num_prompt) for row, token_ids, num_prompt in rows}
    if not of_row:
        return
    cells = [row * vocab_size + token_id for row, times in of_row.items() for token_id in times]
    values = chain.from_iterable(times.values() for times in of_row.values())
    pieces = upload([int64(of_row), int64(cells), int64(values)], counts.device)
    counts.index_fill_(0, pieces[0], 0)
    counts.view(-1).index_copy_(0, pieces[1], pieces[2].to(counts.dtype))


def count_one(counts: torch.Tensor, rows: list[int], token_ids: torch.Tensor) -> None:
    """Queue counting one more token in each of some rows.

    Args:
        counts: as in `write_counts`.
        rows: each at most once.
        token_ids: `[num_rows]`, int32, on the device: of all rows of `counts`, or of the first ones.
    """
    [places] = upload([int64(rows)], counts.device)
    cells = torch.add(token_ids.index_select(0, places), places, alpha=counts.shape[1])
    flat = counts.view(-1)
    flat.index_copy_(0, cells, flat.index_select(0, cells) + 1)


def _occurrences(token_ids: list[int], num_prompt: int) -> dict[int, int]:
    counts = dict.fromkeys(token_ids[:num_prompt], IN_PROMPT)
    for token_id, times in Counter(token_ids[num_prompt:]).items():
        counts[token_id] = counts.get(token_id, 0) + min(times, _MOST)
    return counts

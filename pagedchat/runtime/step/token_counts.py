"""How often tokens have occurred in sequences, as the sampling op's penalties go by it (`ops.sampling.sample`)."""

from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from pagedchat.ops.sampling.sample_rows import IN_PROMPT
from pagedchat.runtime.step.upload import int64, upload

_MOST = -IN_PROMPT - 1
"""Times that a count can hold."""

Counted = tuple[int, list[int], int]
"""A row of counts, the tokens of its sequence, and how many of them, from the first on, are the prompt."""
_Numbers = np.ndarray[Any, np.dtype[np.int64]]


def write_counts(counts: torch.Tensor, rows: Iterable[Counted]) -> None:
    """Queue counting the tokens of some sequences anew; the host waits for nothing, and the device counts.

    Args:
        counts: `[num_rows, vocab_size]`, int16: the op's. Other rows stay as they are.
        rows: each row at most once.
    """
    places, token_ids, prompt_lens, reply_lens = list[int](), array("q"), list[int](), list[int]()
    for row, tokens, num_prompt in rows:
        places.append(row)
        token_ids.extend(tokens)
        prompt_lens.append(min(num_prompt, len(tokens)))
        reply_lens.append(len(tokens) - prompt_lens[-1])
    if not places:
        return
    parts = np.array([prompt_lens, reply_lens]).T.ravel()  # of each row its prompt and its reply
    first_cells = np.array(places, dtype=np.int64) * counts.shape[1]
    cells = np.frombuffer(token_ids, dtype=np.int64) + np.repeat(np.repeat(first_cells, 2), parts)
    in_reply = np.repeat(np.tile([False, True], len(places)), parts)
    replies, times = _occurrences(cells[in_reply], max(reply_lens))
    pieces = [int64(places), *map(torch.from_numpy, (cells[~in_reply], replies, times))]
    of_rows, of_prompts, of_replies, of_times = upload(pieces, counts.device)
    counts.index_fill_(0, of_rows, 0)
    flat = counts.view(-1)
    flat.index_fill_(0, of_prompts, IN_PROMPT)
    flat.index_add_(0, of_replies, of_times.to(counts.dtype))


def _occurrences(cells: "_Numbers", longest: int) -> "tuple[_Numbers, _Numbers]":
    """Cells, and what is to be added to each: one for every time, or less where a row could have too many."""
    if longest <= _MOST:
        return cells, np.ones_like(cells)
    found, times = np.unique(cells, return_counts=True)
    return found, np.minimum(times, _MOST)


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

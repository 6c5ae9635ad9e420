"""Logits -> token ids: what each sequence asks for, put the way the sampling op takes it. Knows no scheduler.

A row's result depends on its own logits, parameters, seed and position only, never on its neighbours, and from the
same logits a GPU draws the same token as a CPU; see `ops.sampling.sample`.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Rows
from contextlib import nullcontext
from typing import Literal

import torch

from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.ops.common.in_threads import one_thread
from pagedchat.ops.sampling import sample as op
from pagedchat.ops.sampling.sample_rows import SampleRow, pack_rows
from pagedchat.ops.screening.plan import MAX_TOP_K
from pagedchat.runtime.step.rules import under_rules
from pagedchat.runtime.step.sampling_row import SamplingRow
from pagedchat.runtime.step.token_counts import Counted, write_counts
from pagedchat.runtime.step.upload import int32, upload

Choice = Literal["greedy", "shortlist", "drawn"]
"""How the tokens of a batch are chosen together: the most likely ones, or those that the sampling op draws
(`ops.sampling.sample`), each from few or from all; with penalties the most likely ones are its business too."""


def choice_for(sequences: Iterable[Sequence]) -> Choice:
    """How their tokens are chosen together."""
    # Of many sequences most share the same object.
    params = {id(seq.sampling_params): seq.sampling_params for seq in sequences}.values()
    if all(each.greedy and not each.penalises for each in params):
        return "greedy"
    return "shortlist" if all(map(_has_shortlist, params)) else "drawn"


def _has_shortlist(params: SamplingParams) -> bool:
    """Whether its tokens are among few with the highest logits, as penalties only make logits lower."""
    is_short = params.greedy or 0 < params.top_k <= MAX_TOP_K
    only_lowers = params.repetition_penalty >= 1 and min(params.presence_penalty, params.frequency_penalty) >= 0
    return is_short and only_lowers


def any_ruled(sequences: Iterable[Sequence]) -> bool:
    """Whether one of them has rules of its own for its tokens; see `rules`."""
    params = {id(seq.sampling_params): seq.sampling_params for seq in sequences}.values()
    return any(each.has_rules for each in params)


def sample(logits: torch.Tensor, rows: Rows[SamplingRow]) -> list[int]:
    """Choose one token per row.

    Args:
        logits: `[num_rows, vocab_size]`, float16, bfloat16 or float32; not changed.
        rows: one for each row of `logits`.

    Returns:
        The token ids.
    """
    # To draw is some twenty short operations for each row, and threads would wait for each other longer than they
    # work: beside other programs, four rows of 151,936 tokens took 75 ms by two of them and 11 by one (2 cores).
    with one_thread() if logits.device.type == "cpu" else nullcontext():
        return _sample(logits, rows)


def _sample(logits: torch.Tensor, rows: Rows[SamplingRow]) -> list[int]:
    penalised = [row for row in rows if row.penalised]
    [positions] = upload([int32(len(row.token_ids) for row in rows)], logits.device)
    logits = under_rules(logits, rows, positions)
    if not penalised and all(row.params.greedy for row in rows):
        greedy: list[int] = logits.max(dim=-1).indices.tolist()  # three times as fast as argmax on a CPU
        return greedy
    counts = counts_for(rows, logits) if penalised else None
    [packed] = upload([pack_rows(op_rows(rows))], logits.device)
    token_ids: list[int] = op.sample(logits, packed, positions, counts).tolist()
    return token_ids


def op_rows(rows: Rows[SamplingRow]) -> list[SampleRow]:
    """The rows as the op has them; those with a penalty have the row of counts of the same number."""
    return [
        SampleRow(
            temperature=row.params.temperature,
            top_k=row.params.top_k,
            top_p=row.params.top_p,
            min_p=row.params.min_p,
            repetition_penalty=row.params.repetition_penalty,
            presence_penalty=row.params.presence_penalty,
            frequency_penalty=row.params.frequency_penalty,
            seed=row.seed,
            counts_row=i if row.penalised else -1,
        )
        for i, row in enumerate(rows)
    ]


def counted(rows: Rows[SamplingRow]) -> list[Counted]:
    """The rows whose tokens are to be counted."""
    return [(i, row.token_ids, row.num_prompt_tokens) for i, row in enumerate(rows) if row.penalised]


def counts_for(rows: Rows[SamplingRow], logits: torch.Tensor) -> torch.Tensor:
    """Their counts, beside `logits`: `[num_rows, vocab_size]`, int16."""
    counts = torch.zeros(len(rows), logits.shape[1], dtype=torch.int16, device=logits.device)
    write_counts(counts, counted(rows))
    return counts

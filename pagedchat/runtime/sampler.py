"""Logits -> token ids: what each sequence asks for, put the way the sampling op takes it. Knows no engine state.

A row's result depends on its own logits, parameters, seed and position only, never on its neighbours, and from the
same logits a GPU draws the same token as a CPU; see `ops.sample`.
"""

from collections.abc import Sequence as Rows
from dataclasses import dataclass

import torch

from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.ops import sample as op
from pagedchat.ops.sample_rows import IN_PROMPT, SampleRow, pack_rows
from pagedchat.runtime.upload import int32, int64, upload


@dataclass(frozen=True, slots=True)
class SamplingRow:
    """Whose next token is to be chosen."""

    params: SamplingParams
    token_ids: list[int]
    """All tokens so far, prompt and reply."""
    seed: int

    @property
    def penalised(self) -> bool:
        """Whether tokens that occurred already become less likely."""
        return self.params.penalises


def sample(logits: torch.Tensor, rows: Rows[SamplingRow]) -> list[int]:
    """Choose one token per row.

    Args:
        logits: `[num_rows, vocab_size]`, float16, bfloat16 or float32; not changed.
        rows: one for each row of `logits`.

    Returns:
        The token ids.
    """
    penalised = [row for row in rows if row.penalised]
    if not penalised and all(row.params.greedy for row in rows):
        greedy: list[int] = logits.max(dim=-1).indices.tolist()  # three times as fast as argmax on a CPU
        return greedy
    counts = _occurrences(penalised, logits) if penalised else None
    positions = int32(len(row.token_ids) for row in rows)
    packed, positions = upload([pack_rows(op_rows(rows)), positions], logits.device)
    token_ids: list[int] = op.sample(logits, packed, positions, counts).tolist()
    return token_ids


def op_rows(rows: Rows[SamplingRow]) -> list[SampleRow]:
    """The rows as the op has them; those with a penalty are numbered."""
    op_rows, num_penalised = [], 0
    for row in rows:
        op_rows.append(
            SampleRow(
                temperature=row.params.temperature,
                top_k=row.params.top_k,
                top_p=row.params.top_p,
                repetition_penalty=row.params.repetition_penalty,
                seed=row.seed,
                counts_row=num_penalised if row.penalised else -1,
            )
        )
        num_penalised += row.penalised
    return op_rows


def _occurrences(rows: Rows[SamplingRow], logits: torch.Tensor) -> torch.Tensor:
    """Which tokens each sequence has, as the op's counts: `[num_rows, vocab_size]`, int16."""
    vocab_size = logits.shape[1]
    counts = torch.zeros(len(rows), vocab_size, dtype=torch.int16, device=logits.device)
    cells = int64(i * vocab_size + token_id for i, row in enumerate(rows) for token_id in set(row.token_ids))
    counts.view(-1).index_fill_(0, upload([cells], logits.device)[0], IN_PROMPT)
    return counts

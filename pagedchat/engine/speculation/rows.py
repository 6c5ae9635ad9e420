"""A sequence with a draft as what every runner knows already: sequences that compute one token each. A runner that
knows drafts (`engine.output.DraftVerifier`) does the same without them.

::

    tokens   | ... t9 | d0  d1  d2        t9 is the last token, d0 to d2 are drafted
    rows       row 0: t9 at 9    row 1: d0 at 10    row 2: d1 at 11    row 3: d2 at 12

Row i ends with the i-th drafted token, and all rows have the sequence's own block table. A runner writes keys and
values of all rows of a layer before any of them attends, so row i reads those of the rows before it as if they had
been there for long. What is sampled after row i is then what plain decoding samples there, if the drafts up to it
are right: by the same random number too, which goes by seed and position.

Knows batches and runners; not where drafts come from, nor what becomes of them.
"""

from functools import cache
from typing import TypeVar, cast

from pagedchat.engine.output import (
    DraftVerifier,
    ModelRunner,
    ModelRunnerOutput,
    ScheduledSequence,
    SchedulerOutput,
)
from pagedchat.engine.sequence import Sequence

_T = TypeVar("_T")


def execute_in_rows(runner: ModelRunner, batch: SchedulerOutput) -> ModelRunnerOutput:
    """Have a runner carry out a batch, drafts as rows.

    Returns:
        For each part what was sampled; for one with a draft a token for each of its rows.
    """
    if not any(part.draft for part in batch.scheduled):
        return runner.execute(batch)
    if knows_drafts(type(runner)):
        verified = cast(DraftVerifier, runner).verify(batch)
        if verified is not None:
            return verified
    rows = [row for part in batch.scheduled for row in _rows_of(part)]
    in_rows = SchedulerOutput(batch.step, rows, batch.block_ops, batch.num_tokens, None, batch.meanwhile)
    in_rows.searches = batch.searches
    output = runner.execute(in_rows)
    output.token_ids = _by_part(batch, output.token_ids)
    if output.logprobs is not None:
        output.logprobs = _by_part(batch, output.logprobs)
    if output.prompt_logprobs is not None:
        output.prompt_logprobs = _by_part(batch, output.prompt_logprobs)
    return output


@cache
def knows_drafts(kind: type) -> bool:
    """Whether runners of this type are a `DraftVerifier`: found out once, since to look through one for what a
    protocol wants takes longer than to schedule a step."""
    return issubclass(kind, DraftVerifier)


def _by_part(batch: SchedulerOutput, of_rows: list[list[_T]]) -> list[list[_T]]:
    each = iter(of_rows)
    return [[item for _ in range(len(part.draft) + 1) for item in next(each)] for part in batch.scheduled]


def _rows_of(part: ScheduledSequence) -> list[ScheduledSequence]:
    if not part.draft:
        return [part]
    seq, start = part.sequence, part.start
    return [
        ScheduledSequence(_row(seq, start + i, part.draft[:i]), start + i, 1, True, is_row=True)
        for i in range(part.num_tokens)
    ]


def _row(seq: Sequence, start: int, draft: list[int]) -> Sequence:
    """The sequence as it would be if so much of the draft were right. Nothing may be begun ahead for it: there is
    no room that it may write to."""
    row = Sequence(seq.seq_id)
    row.token_ids = seq.token_ids + draft
    row.num_computed, row.block_table = start, seq.block_table
    row.num_prompt_tokens, row.sampling_params, row.seed = seq.num_prompt_tokens, seq.sampling_params, seq.seed
    row.stop_token_ids, row.stop_length, row.status = seq.stop_token_ids, seq.stop_length, seq.status
    return row

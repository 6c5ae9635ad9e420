"""How likely tokens were, from logits to what the engine keeps of it. Knows rows, sequences and no step.

What is asked of a row is a number: so many of the most likely tokens, or `NOTHING`.
"""

from collections.abc import Iterable, Sequence

import torch

from pagedchat.engine.output import ScheduledSequence
from pagedchat.engine.sequence import Sequence as EngineSequence
from pagedchat.engine.sequence import TokenLogprobs
from pagedchat.ops.sampling.top_logprobs import TopLogprobs, top_logprobs
from pagedchat.runtime.step.batch_inputs import ToldRows
from pagedchat.runtime.step.upload import int32, upload

NOTHING = -1
"""Of a row of which nothing is told."""


def asked_of(sequences: Iterable[EngineSequence]) -> list[int]:
    """What is asked of each sequence's next token; empty where nothing is of any."""
    asked = [seq.sampling_params.logprobs for seq in sequences]
    return [] if asked.count(None) == len(asked) else [NOTHING if each is None else each for each in asked]


def look_up(logits: torch.Tensor, token_ids: Sequence[int], asked: Sequence[int]) -> list[list[TokenLogprobs]]:
    """How likely tokens were, waiting for the answer.

    Args:
        logits: `[num_rows, vocab_size]`, float16, bfloat16 or float32.
        token_ids: one of each row.
        asked: of each row.

    Returns:
        One entry for each row of which something is asked, none for others.
    """
    chosen, counts = upload([int32(token_ids), int32(asked)], logits.device)
    output = TopLogprobs.empty(len(logits), max(asked), logits.device)
    return read(top_logprobs(logits, chosen, counts, output), range(len(logits)), asked)


def read(found: TopLogprobs, rows: Sequence[int], asked: Sequence[int]) -> list[list[TokenLogprobs]]:
    """What was found of some rows, which is there by now.

    Args:
        found: of all rows, on a CPU as well as on a GPU.
        rows: those to be read.
        asked: of each of these.
    """
    width = 1 + max(asked, default=NOTHING)
    token_ids, logprobs, ranks = (tensor.numpy(force=True) for tensor in found)
    picked = _picked(rows)
    lists = (token_ids[picked, :width].tolist(), logprobs[picked, :width].tolist(), ranks[picked].tolist())
    if 0 <= width - 1 == min(asked, default=NOTHING):  # all ask for the same
        return [[told] for told in map(TokenLogprobs, *lists)]
    return [
        [] if count < 0 else [TokenLogprobs(ids[: count + 1], numbers[: count + 1], rank)]
        for ids, numbers, rank, count in zip(*lists, asked, strict=True)
    ]


class ToldStep:
    """What was found of some rows of one step, one entry each, all of it made when the first is asked for.

    Args:
        found: of all rows, which is there by now, on a CPU; it may be overwritten afterwards.
        rows: those to be read.
        count: asked of each of them, at least 0.
    """

    def __init__(self, found: TopLogprobs, rows: Sequence[int], count: int) -> None:
        token_ids, logprobs, ranks = (tensor.numpy() for tensor in found)
        picked = _picked(rows)
        columns = (token_ids[picked, : 1 + count], logprobs[picked, : 1 + count], ranks[picked])
        self._columns = [column.copy() for column in columns]
        self._entries: dict[int, TokenLogprobs] = {}

    def __getitem__(self, place: int, /) -> TokenLogprobs:
        """Of the row in this place among `rows`, once: whoever has it keeps it."""
        if self._columns:
            self._entries = dict(enumerate(map(TokenLogprobs, *[column.tolist() for column in self._columns])))
            self._columns.clear()
        return self._entries.pop(place)


def told_of_prompts(
    logits: torch.Tensor, told: list[ToldRows], scheduled: list[ScheduledSequence]
) -> list[list[TokenLogprobs]]:
    """What a step tells of prompts: see `ModelRunnerOutput.prompt_logprobs`.

    Args:
        logits: `[num_wanted, vocab_size]`.
        told: which of these rows are prompt tokens.
        scheduled: the batch.
    """
    found: list[list[TokenLogprobs]] = [[] for _ in scheduled]
    for index, first, count in told:
        part = scheduled[index]
        next_ids = part.sequence.token_ids[part.start + 1 : part.start + 1 + count]
        asked = [part.sequence.sampling_params.prompt_logprobs or 0] * count
        found[index] = [entry for [entry] in look_up(logits[first : first + count], next_ids, asked)]
    return found


def _picked(rows: Sequence[int]) -> slice | list[int]:
    return slice(len(rows)) if [*rows] == [*range(len(rows))] else [*rows]

"""What came back from the model, taken into the sequences: tokens appended, ends found, full blocks noticed.

Changes sequences only; queues and blocks are the engine's to change, by what it is told here.
"""

from typing import NamedTuple

from pagedchat.engine.output import ScheduledSequence
from pagedchat.engine.sequence import Sequence
from pagedchat.events import BatchEntry, FinishReason


class Taken(NamedTuple):
    """What a step did to its sequences."""

    entries: list[BatchEntry]
    num_prefill: int
    num_decode: int
    """Tokens of prompts, and of replies."""
    filled: list[Sequence]
    """Those whose one token filled a block; of more than one, `beside_pass` takes care."""
    finished: list[tuple[Sequence, FinishReason]]


def take_in(scheduled: list[ScheduledSequence], token_ids: list[list[int]], block_size: int) -> Taken:
    """Take in the sampled tokens. The loop runs for every sequence of a step: it stays lean.

    Args:
        scheduled: the batch that was run.
        token_ids: what was sampled for each part.
        block_size: token slots in a block.
    """
    entries, filled = [], []
    finished: list[tuple[Sequence, FinishReason]] = []
    num_prefill = num_decode = 0
    for item, tokens in zip(scheduled, token_ids, strict=True):
        seq, start, count = item.sequence, item.start, item.num_tokens
        computed = seq.num_computed = start + count
        if count == 1 and not computed % block_size:
            filled.append(seq)
        if count == 1 and start >= seq.num_prompt_tokens:
            num_decode += 1
            entries.append(BatchEntry(seq.seq_id, 0, 1, tokens))
        else:
            num_prefill += count
            entries.append(BatchEntry(seq.seq_id, count, 0, tokens))
        for token in tokens:
            seq.token_ids.append(token)
            if token in seq.stop_token_ids or len(seq.token_ids) >= seq.stop_length:
                finished.append((seq, _reason(seq, token)))
                break
    return Taken(entries, num_prefill, num_decode, filled, finished)


def ended(sequences: list[Sequence], tokens: list[int]) -> list[tuple[Sequence, FinishReason]]:
    """Which of these sequences end with their last tokens, and why."""
    return [
        (seq, _reason(seq, token))
        for seq, token in zip(sequences, tokens, strict=True)
        if token in seq.stop_token_ids or len(seq.token_ids) >= seq.stop_length
    ]


def _reason(seq: Sequence, last_token: int) -> FinishReason:
    return "stop" if last_token in seq.stop_token_ids else "length"

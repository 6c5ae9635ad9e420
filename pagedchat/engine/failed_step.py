"""What is done when a batch raises: whoever caused it ends alone, and nothing counts as being where it is not.

A runner takes the moves of a batch off its list as they are carried out. If all of them were, every part of the
batch is run once more by itself: one that raises again is the one to blame, the others have their tokens. If some
were not, or if it was an interrupt, the batch is *taken back*: no block is found by contents that it may not have,
and a sequence that holds such a block computes its tokens again.

A broken invariant is never anybody's own fault, so it is passed on; so is what the runner says of itself, such as a
device that does not answer any more.
"""

from collections.abc import Iterable
from typing import NamedTuple

from pagedchat import cache_events as ev
from pagedchat.engine.block_manager import BlockManager
from pagedchat.engine.output import BlockOp, ModelRunner, ModelRunnerOutput, ScheduledSequence, SchedulerOutput
from pagedchat.engine.queues import Queues
from pagedchat.engine.sequence import Sequence
from pagedchat.engine.speculation.rows import execute_in_rows
from pagedchat.errors import is_of_one_request


class Salvage(NamedTuple):
    """What came of a batch whose parts were run one by one."""

    scheduled: list[ScheduledSequence]
    """Those that ran."""
    output: ModelRunnerOutput
    """Of these."""
    failed: list[tuple[Sequence, BaseException]]
    """The others, and what each of them raised."""


def note_moves(batch: SchedulerOutput, block_size: int) -> None:
    """A runner that chooses beams moves what they hold by itself: whatever they were to write to may be written."""
    if batch.run is not None:
        place_of = {id(part.sequence): part.start // block_size for part in batch.scheduled}
        for search in batch.run.searches:
            written = [seq.block_table[place_of[id(seq)]] for seq, _ in search.standing()]
            batch.block_ops += [BlockOp("copy", block_id, block_id) for block_id in written]


def may_be_isolated(error: BaseException, batch: SchedulerOutput) -> bool:
    """Whether one part of the batch may be to blame, and the cache is as it would be without the others."""
    return is_of_one_request(error) and not batch.block_ops


def run_apart(runner: ModelRunner, batch: SchedulerOutput) -> Salvage:
    """Run every part of a batch by itself; computing KV anew where it is already does no harm.

    Raises:
        Exception: the runner is of no use any more, or all of several parts raise.
    """
    runner.check()
    salvage, outputs = Salvage([], ModelRunnerOutput([]), []), list[ModelRunnerOutput]()
    for part in batch.scheduled:
        try:
            output = execute_in_rows(runner, SchedulerOutput(batch.step, [part], [], part.num_tokens))
        except BaseException as error:
            if not is_of_one_request(error):
                raise
            runner.check()
            salvage.failed.append((part.sequence, error))
        else:
            salvage.scheduled.append(part)
            outputs.append(output)
    if not salvage.scheduled and len(salvage.failed) > 1:
        raise salvage.failed[0][1]
    joined = salvage.output
    joined.token_ids = [token_ids for output in outputs for token_ids in output.token_ids]
    if any(output.logprobs for output in outputs):
        joined.logprobs = [told for output in outputs for told in output.logprobs or [[]]]
    if any(output.prompt_logprobs for output in outputs):
        joined.prompt_logprobs = [told for output in outputs for told in output.prompt_logprobs or [[]]]
    return salvage


def forget_unfilled(blocks: BlockManager, seq: Sequence) -> None:
    """Blocks that were made findable while a step was to fill them, and that it did not fill, are found no more."""
    known = seq.num_computed // blocks.block_size
    for index in range(known, len(seq.block_hashes)):
        entry = blocks.cache.entry(seq.block_table[index])
        if entry is not None and entry.block_hash == seq.block_hashes[index]:
            blocks.forget_contents(entry.block_id, "fault")
    del seq.block_hashes[known:]


def take_back(batch: SchedulerOutput, blocks: BlockManager, queues: Queues, sequences: Iterable[Sequence]) -> None:
    """A batch was not run to its end, and nobody knows how far it came. Its moves are forgotten.

    Args:
        batch: with those of its moves that were not, or may not have been, carried out.
        blocks: in which it was planned.
        queues: where its sequences stand.
        sequences: all there are.
    """
    for part in batch.scheduled:
        forget_unfilled(blocks, part.sequence)
    on_device = {op.dst for op in batch.block_ops if op.kind != "swap_out"}
    in_host = {op.dst for op in batch.block_ops if op.kind == "swap_out"}
    for block_id in on_device:
        blocks.forget_contents(block_id, "fault")
    for seq in list(sequences):  # what is in host memory is found no more when all of its owners have dropped it
        if not on_device.isdisjoint(seq.block_table) or not in_host.isdisjoint(seq.host_block_table):
            _lose_contents(seq, blocks, queues)
    batch.block_ops.clear()


def _lose_contents(seq: Sequence, blocks: BlockManager, queues: Queues) -> None:
    """All of its tokens are to be computed again, save those that are found in the cache."""
    num_tokens = seq.num_computed
    queues.remove(seq)
    blocks.free(seq)
    if seq.status == "parked":
        queues.park(seq)
    else:
        queues.enqueue(seq, "waiting")
    blocks.events.append(ev.ContentsLost(seq.seq_id, num_tokens, seq.status))

"""Batches of decodes and prefills: captured steps run the decodes, whoever can runs the prefills."""

from collections.abc import Callable

from pagedchat.engine.output import ModelRunnerOutput, ScheduledSequence, SchedulerOutput
from pagedchat.runtime.decode_graph.decode_steps import DecodeSteps

Execute = Callable[[SchedulerOutput], ModelRunnerOutput]


def execute_mixed(decodes: DecodeSteps, batch: SchedulerOutput, others: Execute) -> ModelRunnerOutput:
    """Run any batch.

    No sequence of a step reads what another writes in it, so that parts may run one after the other.

    Args:
        decodes: runs single tokens, if it can.
        batch: of a step.
        others: runs everything else.
    """
    single = [part for part in batch.scheduled if _is_decode(part)]
    if not single:
        return others(batch)
    chunks = [part for part in batch.scheduled if not _is_decode(part)]
    # Whoever comes to the end of the prompt joins the decodes: what was begun ahead would lack its row.
    goes_on = not any(part.samples for part in chunks)
    begun = decodes.begin(_part_of(batch, single, first=True) if chunks else batch, goes_on=goes_on)
    if begun is None:
        return others(batch)
    if not chunks:
        return decodes.finish(begun)
    computed = others(_part_of(batch, chunks))  # while the device decodes
    return _merge(batch, decodes.finish(begun), computed)


def _is_decode(part: ScheduledSequence) -> bool:
    return part.num_tokens == 1 and part.samples


def _part_of(batch: SchedulerOutput, parts: list[ScheduledSequence], *, first: bool = False) -> SchedulerOutput:
    """Block moves come with the first part: they precede all."""
    num_tokens = sum([part.num_tokens for part in parts])
    return SchedulerOutput(batch.step, parts, batch.block_ops if first else [], num_tokens)


def _merge(batch: SchedulerOutput, decoded: ModelRunnerOutput, computed: ModelRunnerOutput) -> ModelRunnerOutput:
    ours, theirs = iter(decoded.token_ids), iter(computed.token_ids)
    return ModelRunnerOutput(
        [next(ours if _is_decode(part) else theirs) for part in batch.scheduled],
        decoded.copy_seconds + computed.copy_seconds,
        decoded.forward_seconds + computed.forward_seconds,
        decoded.sample_seconds + computed.sample_seconds,
        decoded.launch_seconds + computed.launch_seconds,
        decoded.attention_seconds + computed.attention_seconds,
    )

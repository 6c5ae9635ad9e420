"""Batches of decodes and prefills: captured steps run what they can, both kinds queued before either is waited for.

Knows neither graphs nor buffers.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pagedchat.engine.output import ModelRunnerOutput, ScheduledSequence, SchedulerOutput
from pagedchat.runtime.graphs.decode.decode_steps import DecodeSteps

if TYPE_CHECKING:
    from pagedchat.runtime.graphs.decode.ahead import RunningStep
    from pagedchat.runtime.graphs.prefill.prefill_steps import BegunPrefill, PrefillSteps

Execute = Callable[[SchedulerOutput], ModelRunnerOutput]


def execute_mixed(
    decodes: DecodeSteps, batch: SchedulerOutput, others: Execute, prefills: "PrefillSteps | None" = None
) -> ModelRunnerOutput:
    """Run any batch.

    No sequence of a step reads what another writes in it, so that parts may run one after the other.

    Args:
        decodes: runs single tokens, if it can.
        batch: of a step.
        others: runs everything else.
        prefills: runs chunks of prompts, if it can.
    """
    single, chunks = batch.scheduled, []
    if batch.run is None:  # otherwise there is nothing but decodes
        single = [part for part in batch.scheduled if _is_decode(part)]
        chunks = [part for part in batch.scheduled if not _is_decode(part)]
    decoding = prefilling = None
    if single:
        # Whoever comes to the end of the prompt joins the decodes: what was begun ahead would lack its row.
        goes_on = not any(part.samples for part in chunks)
        decoding = decodes.begin(_part_of(batch, single, first=True), goes_on=goes_on)
    if chunks and prefills is not None:
        prefilling = prefills.begin(_part_of(batch, chunks, first=decoding is None))
    if decoding is None and prefilling is None:
        return others(batch)
    replies = None
    if prefilling is not None and prefills is not None and not single:
        replies = _begin_replies(decodes, prefills, prefilling)
    outputs: list[tuple[list[ScheduledSequence], ModelRunnerOutput]] = []
    left = ([] if decoding else single) + ([] if prefilling else chunks)
    if left:  # while the device is busy with the rest
        outputs.append((left, others(_part_of(batch, left))))
    batch.meanwhile()
    if decoding is not None:
        outputs.append((single, decodes.finish(decoding)))
    if prefilling is not None and prefills is not None:
        outputs.append((chunks, prefills.finish(prefilling)))
        if replies is not None:
            replies.token_ids = [token for tokens in outputs[-1][1].token_ids for token in tokens]
    return outputs[0][1] if len(outputs) == 1 else _merge(batch, outputs)


def _begin_replies(decodes: DecodeSteps, prefills: "PrefillSteps", prompts: "BegunPrefill") -> "RunningStep | None":
    """Have the first decodes follow the prompts at once: nobody else decodes, and the device has the tokens."""
    if not prompts.sampled:
        return None
    return decodes.begin_replies([part.sequence for part in prompts.sampled], prefills.chosen_by(prompts))


def _is_decode(part: ScheduledSequence) -> bool:
    return part.num_tokens == 1 and part.samples


def _part_of(batch: SchedulerOutput, parts: list[ScheduledSequence], *, first: bool = False) -> SchedulerOutput:
    """Block moves come with the first part: they precede all."""
    if len(parts) == len(batch.scheduled):
        return batch
    num_tokens = sum([part.num_tokens for part in parts])
    return SchedulerOutput(batch.step, parts, batch.block_ops if first else [], num_tokens)


def _merge(
    batch: SchedulerOutput, outputs: list[tuple[list[ScheduledSequence], ModelRunnerOutput]]
) -> ModelRunnerOutput:
    """The outputs of the parts, each of which has all decodes or all chunks of the batch, as one."""
    tokens: dict[bool, Iterator[list[int]]] = {}
    for parts, output in outputs:
        remaining = iter(output.token_ids)
        tokens.update({_is_decode(part): remaining for part in parts})
    each = [output for _, output in outputs]
    return ModelRunnerOutput(
        [next(tokens[_is_decode(part)]) for part in batch.scheduled],
        sum([output.copy_seconds for output in each]),
        sum([output.forward_seconds for output in each]),
        sum([output.sample_seconds for output in each]),
        sum([output.launch_seconds for output in each]),
        sum([output.attention_seconds for output in each]),
    )

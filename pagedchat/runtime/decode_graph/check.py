"""A captured step held against the eager one, once, before the first request.

The fused kernels compute the same numbers on another road; on a GPU where they did not, nobody should find out from
the model's answers.
"""

import logging

import torch

from pagedchat.engine.output import ScheduledSequence, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.runtime.batch_inputs import flatten
from pagedchat.runtime.model_runner import TorchModelRunner

log = logging.getLogger(__name__)

_NUM_TOKENS = 7
_TOLERANCE = 0.1
"""Relative error of the logits. What is wrong is off by about 1; two roundings of bfloat16 stay far below."""


@torch.inference_mode()
def keep_if_right(runner: TorchModelRunner, vocab_size: int) -> None:
    """Run one token of a short text both ways; a runner whose captured step is off goes on without any.

    Args:
        runner: with a cache whose contents do not matter.
        vocab_size: token ids are below it.
    """
    decodes, block_size = runner.decodes, runner.backend.shape.block_size
    length = min(_NUM_TOKENS, runner.backend.num_blocks * block_size)
    if decodes is None or length < 2:
        return
    sequence = _text([(i * 7919 + 11) % vocab_size for i in range(length)], block_size)
    last = ScheduledSequence(sequence, length - 1, 1, True)
    runner.forward(flatten([ScheduledSequence(sequence, 0, length - 1, False)], block_size, runner.device))
    begun = decodes.begin(SchedulerOutput(0, [last], [], 1))
    if begun is None:
        return
    decodes.finish(begun)
    logits = decodes.last_logits[0].float()
    expected = runner.forward(flatten([last], block_size, runner.device))[0].float()
    error = float((logits - expected).norm() / expected.norm().clamp_min(1e-9))
    if not error <= _TOLERANCE:
        log.warning("Steps are not captured, since a captured one is off by %.2g.", error)
        runner.decodes = None


def _text(token_ids: list[int], block_size: int) -> Sequence:
    sequence = Sequence(0)
    sequence.token_ids = token_ids
    sequence.block_table = list(range(-(-len(token_ids) // block_size)))
    sequence.sampling_params = SamplingParams(temperature=0)
    sequence.stop_length = len(token_ids) + 1
    return sequence

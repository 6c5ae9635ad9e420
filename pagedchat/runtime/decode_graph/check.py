"""A captured step held against the eager one, once, before the first request.

The fused kernels compute the same numbers on another road; on a GPU where they did not, nobody should find out from
the model's answers.
"""

import logging

import torch

from pagedchat.engine.output import ScheduledSequence, SchedulerOutput
from pagedchat.runtime.batch_inputs import flatten
from pagedchat.runtime.model_runner import TorchModelRunner
from pagedchat.runtime.trial_text import TOLERANCE, relative_error, trial_text

log = logging.getLogger(__name__)

_NUM_TOKENS = 7


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
    sequence = trial_text(length, vocab_size, block_size)
    last = ScheduledSequence(sequence, length - 1, 1, True)
    runner.forward(flatten([ScheduledSequence(sequence, 0, length - 1, False)], block_size, runner.device))
    begun = decodes.begin(SchedulerOutput(0, [last], [], 1))
    if begun is None:
        return
    decodes.finish(begun)
    logits = decodes.last_logits[0].clone()
    error = relative_error(logits, runner.forward(flatten([last], block_size, runner.device))[0])
    if not error <= TOLERANCE:
        log.warning("Steps are not captured, since a captured one is off by %.2g.", error)
        runner.decodes = None

"""A captured prefill held against the eager one, once, before the first request; see `graphs.decode.check`."""

import logging

import torch

from pagedchat.engine.output import ScheduledSequence, SchedulerOutput
from pagedchat.runtime.graphs.trial_text import TOLERANCE, relative_error, trial_text
from pagedchat.runtime.step.batch_inputs import flatten
from pagedchat.runtime.step.model_runner import TorchModelRunner

log = logging.getLogger(__name__)

_NUM_TOKENS = 40
_START = 20
"""Tokens computed before the chunk that is compared; both chunks have the size of a common prompt."""


@torch.inference_mode()
def keep_if_right(runner: TorchModelRunner, vocab_size: int) -> None:
    """Run a short text in two chunks both ways; a runner whose captured pass is off goes on without any.

    Args:
        runner: with a cache whose contents do not matter.
        vocab_size: token ids are below it.
    """
    prefills, block_size = runner.prefills, runner.backend.shape.block_size
    length = min(_NUM_TOKENS, runner.backend.num_blocks * block_size)
    if prefills is None or length <= _START:
        return
    sequence = trial_text(length, vocab_size, block_size)
    chunks = [
        ScheduledSequence(sequence, 0, _START, False),
        ScheduledSequence(sequence, _START, length - _START, True),
    ]
    for chunk in chunks:
        begun = prefills.begin(SchedulerOutput(0, [chunk], [], chunk.num_tokens))
        if begun is None:
            return
        prefills.finish(begun)
    logits = prefills.logits[0].clone()
    for chunk in chunks:
        expected = runner.forward(flatten([chunk], block_size, runner.device))
    error = relative_error(logits, expected[0])
    if not error <= TOLERANCE:
        log.warning("Prefills are not captured, since a captured one is off by %.2g.", error)
        runner.prefills = None

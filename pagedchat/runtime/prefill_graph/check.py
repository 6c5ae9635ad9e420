"""A captured prefill held against the eager one, once, before the first request; see `decode_graph.check`."""

import logging

import torch

from pagedchat.engine.output import ScheduledSequence, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.runtime.batch_inputs import flatten
from pagedchat.runtime.model_runner import TorchModelRunner

log = logging.getLogger(__name__)

_NUM_TOKENS = 40
_START = 20
"""Tokens computed before the chunk that is compared; both chunks have the size of a common prompt."""
_TOLERANCE = 0.1
"""Relative error of the logits. What is wrong is off by about 1; two roundings of bfloat16 stay far below."""


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
    sequence = Sequence(0)
    sequence.token_ids = [(i * 7919 + 11) % vocab_size for i in range(length)]
    sequence.block_table = list(range(-(-length // block_size)))
    sequence.sampling_params = SamplingParams(temperature=0)
    chunks = [
        ScheduledSequence(sequence, 0, _START, False),
        ScheduledSequence(sequence, _START, length - _START, True),
    ]
    for chunk in chunks:
        begun = prefills.begin(SchedulerOutput(0, [chunk], [], chunk.num_tokens))
        if begun is None:
            return
        prefills.finish(begun)
    logits = prefills.logits[0].float()
    for chunk in chunks:
        expected = runner.forward(flatten([chunk], block_size, runner.device))
    error = float((logits - expected[0].float()).norm() / expected[0].float().norm().clamp_min(1e-9))
    if not error <= _TOLERANCE:
        log.warning("Prefills are not captured, since a captured one is off by %.2g.", error)
        runner.prefills = None

"""A captured step held against the eager one, once, before the first request.

The fused kernels compute the same numbers on another road; on a GPU where they did not, nobody should find out from
the model's answers.
"""

import logging

import torch

from pagedchat.engine.output import ScheduledSequence, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.runtime.graphs.decode.decode_steps import DecodeSteps
from pagedchat.runtime.graphs.trial_text import TOLERANCE, relative_error, trial_text
from pagedchat.runtime.step.batch_inputs import flatten
from pagedchat.runtime.step.model_runner import TorchModelRunner

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
    likely = _run(decodes, last)
    # A step that chooses the most likely token may have made no logits.
    sequence.sampling_params = SamplingParams(temperature=1.0)
    if likely is None or _run(decodes, last) is None:
        return
    logits = decodes.last_logits[0].clone()
    expected = runner.forward(flatten([last], block_size, runner.device))[0]
    error = max(relative_error(logits, expected), _regret(logits, likely))
    if not error <= TOLERANCE:
        log.warning("Steps are not captured, since a captured one is off by %.2g.", error)
        runner.decodes = None


def _run(decodes: DecodeSteps, last: ScheduledSequence) -> int | None:
    """The token that follows; None if the step is not captured."""
    begun = decodes.begin(SchedulerOutput(0, [last], [], 1), goes_on=False)
    return None if begun is None else decodes.finish(begun).token_ids[0][0]


def _regret(logits: torch.Tensor, token_id: int) -> float:
    """How far the token's logit is below the highest, relative to it."""
    highest = logits.float().max()
    return float((highest - logits[token_id].float()) / highest.abs().clamp_min(1e-9))

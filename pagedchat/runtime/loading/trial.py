"""Batches made up before the first request: the largest one, to see how much memory it takes, and a small one whose
result is held against the same model without a cache.

The second is what makes "any model of transformers" safe to say: a model that keeps state outside the KV cache, or
looks at its text in a way that the paged attention does not know of, gives other logits and is refused. Models of
our own go through it too; what it finds there is an attention backend that is wrong.
"""

from itertools import pairwise

import torch

from pagedchat.engine.output import ScheduledSequence, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.errors import DeviceError, ModelError
from pagedchat.runtime.attention.backend import CacheShape
from pagedchat.runtime.attention.choice import BackendFactory
from pagedchat.runtime.loading.own_logits import own_logits
from pagedchat.runtime.step.batch_inputs import flatten
from pagedchat.runtime.step.model_runner import TorchModelRunner

SAMPLING = SamplingParams(temperature=1.0, top_p=0.9)
_TRIAL_TOKENS = 7
_TOLERANCE = {torch.float32: 1e-2, torch.float64: 1e-2}
_TOLERANCE_HALF = 0.25
"""Relative error of the logits. Wrong attention is off by about 1; rounding stays far below these."""


def peak_memory(
    runner: TorchModelRunner,
    make_backend: BackendFactory,
    shape: CacheShape,
    num_tokens: int,
    num_seqs: int,
    model_len: int,
) -> int:
    """Bytes of device memory that the largest batch takes at most, weights included and the cache left out.

    Args:
        runner: on a GPU; gets a cache of its own for the run.
        make_backend: makes it.
        shape: of the cache.
        num_tokens: token budget of a step.
        num_seqs: sequences in a step at most.
        model_len: tokens of a sequence at most.

    Raises:
        DeviceError: the batch does not fit.
    """
    batch = largest_batch(num_tokens, num_seqs, model_len, shape.block_size)
    num_blocks = sum(len(part.sequence.block_table) for part in batch.scheduled)
    try:
        runner.backend = make_backend(shape, num_blocks, 0, runner.device)
        torch.cuda.reset_peak_memory_stats(runner.device)
        runner.execute(batch)
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            f"A step of {num_tokens} tokens does not fit into the memory of the GPU.",
            "Lower --max-num-batched-tokens or --max-num-seqs, or choose a smaller model.",
        ) from error
    peak = torch.cuda.max_memory_allocated(runner.device)
    runner.backend = make_backend(shape, 0, 0, runner.device)
    return peak - num_blocks * shape.block_bytes


def largest_batch(num_tokens: int, num_seqs: int, model_len: int, block_size: int) -> SchedulerOutput:
    """A prefill that fills the token budget with as many samples as it can; block ids count from 0.

    Args:
        num_tokens: token budget of a step.
        num_seqs: sequences at most.
        model_len: tokens of a sequence at most.
        block_size: token slots in a block.
    """
    count = max(min(num_seqs, num_tokens), -(-num_tokens // model_len))
    lengths = [num_tokens // count + (i < num_tokens % count) for i in range(count)]
    scheduled, next_block = [], 0
    for seq_id, length in enumerate(lengths):
        num_blocks = -(-length // block_size)
        seq = _sequence(seq_id, [0] * length, list(range(next_block, next_block + num_blocks)))
        next_block += num_blocks
        scheduled.append(ScheduledSequence(seq, 0, length, True))
    return SchedulerOutput(0, scheduled, [], num_tokens)


def check_against_model(name: str, runner: TorchModelRunner, vocab_size: int) -> None:
    """Run one short text in pieces through the paged cache and whole without any cache.

    Args:
        name: of the model, for the message.
        runner: with a cache whose contents do not matter.
        vocab_size: token ids are below it.

    Raises:
        ModelError: the logits differ.
    """
    block_size, num_blocks = runner.backend.shape.block_size, runner.backend.num_blocks
    length = min(_TRIAL_TOKENS, num_blocks * block_size)
    token_ids = [(i * 7919 + 11) % vocab_size for i in range(length)]
    blocks = list(reversed(range(-(-length // block_size))))
    seq = _sequence(0, token_ids, blocks)
    cuts = sorted({0, length // 2, max(length - 1, 0), length})
    for start, end in pairwise(cuts):
        inputs = flatten([ScheduledSequence(seq, start, end - start, True)], block_size, runner.device)
        logits = runner.forward(inputs)
    expected = own_logits(runner.model, token_ids, runner.device)
    error = (logits[0].float() - expected).norm() / expected.norm().clamp_min(1e-9)
    tolerance = _TOLERANCE.get(logits.dtype, _TOLERANCE_HALF)
    if not bool(error <= tolerance):
        raise ModelError(
            f"{name} gives other results with the paged cache than without (off by {float(error):.2g}).",
            "Its attention is not one that pagedchat knows; choose another model.",
        )


def _sequence(seq_id: int, token_ids: list[int], block_table: list[int]) -> Sequence:
    seq = Sequence(seq_id)
    seq.token_ids = token_ids
    seq.block_table = block_table
    seq.sampling_params = SAMPLING
    return seq

"""How many device and host blocks a model gets: measures what is free, and on a GPU what the largest batch
takes, and asks `memory` what fits.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from pagedchat.config import EngineConfig
from pagedchat.engine.output import ScheduledSequence, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.errors import DeviceError
from pagedchat.ops.ranks.company import Company
from pagedchat.runtime.attention.backend import CacheShape
from pagedchat.runtime.attention.choice import BackendFactory
from pagedchat.runtime.loading.device import available_memory
from pagedchat.runtime.loading.memory import (
    check_fits,
    cuda_memory,
    default_cpu_memory,
    num_blocks_for,
    num_host_blocks_for,
    useful_blocks,
)
from pagedchat.runtime.step.model_runner import TorchModelRunner
from pagedchat.runtime.step.sizes import StepSizes

_SAMPLING = SamplingParams(temperature=1.0, top_p=0.9)
"""Of the largest batch: what takes the most memory."""


@dataclass(frozen=True, slots=True)
class PoolSize:
    """Blocks on the device and in host memory."""

    num_blocks: int
    num_host_blocks: int


def measure_pool(
    config: EngineConfig,
    shape: CacheShape,
    model_len: int,
    device: torch.device,
    profile: Callable[[], int],
    company: Company | None = None,
) -> PoolSize:
    """Size the pool, `--num-blocks` and `--kv-cache-memory` first.

    Args:
        config: what the user set.
        shape: of the model's cache.
        model_len: the longest text of the model, in tokens.
        device: where the model runs.
        profile: runs the largest batch and returns the peak of device memory in bytes; called on a GPU only.
        company: all ranks, where this is one of several; they get as many blocks as the one with the least room.

    Raises:
        DeviceError: too little memory for one block, or for what was asked for.
    """
    useful = useful_blocks(model_len, shape.block_size, config.scheduler.max_num_seqs)
    on_cpu = device.type == "cpu"
    size = 1 if company is None else company.size  # so many share the memory of the host
    free = available_memory() // size if on_cpu else _cuda_left(config, device, profile())
    num_blocks = _num_blocks(config, shape, free, useful if on_cpu else None)
    host_free = available_memory() // size - (num_blocks * shape.block_bytes if on_cpu else 0)
    limit = max(num_blocks, useful)
    num_host_blocks = num_host_blocks_for(
        config.cache.swap_space // size, max(0, host_free), shape.block_bytes, limit
    )
    if company is not None:
        num_blocks, num_host_blocks = company.least([num_blocks, num_host_blocks])
    return PoolSize(num_blocks, num_host_blocks)


def _num_blocks(config: EngineConfig, shape: CacheShape, free: int, useful: int | None) -> int:
    """Device blocks; `useful` bounds the default on a CPU, where other programs want the memory too."""
    cache = config.cache
    if cache.num_blocks is not None:
        num_blocks = cache.num_blocks
    elif cache.kv_cache_memory is not None:
        num_blocks = num_blocks_for(cache.kv_cache_memory, shape.block_bytes)
    elif useful is not None:
        num_blocks = min(useful, num_blocks_for(default_cpu_memory(free), shape.block_bytes))
    else:
        num_blocks = num_blocks_for(free, shape.block_bytes)
    check_fits(num_blocks, shape.block_bytes, free)
    return num_blocks


def _cuda_left(config: EngineConfig, device: torch.device, peak: int) -> int:
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    reserved = torch.cuda.memory_reserved(device)
    return cuda_memory(total, free, reserved, peak, config.cache.gpu_memory_utilization)


def peak_memory(runner: TorchModelRunner, make_backend: BackendFactory, sizes: StepSizes) -> int:
    """Bytes of device memory that the largest batch takes at most, weights included and the cache left out.

    Args:
        runner: on a GPU; its model is run over a cache of its own.
        make_backend: makes that cache.
        sizes: of a step, at most.

    Raises:
        DeviceError: the batch does not fit.
    """
    shape, device = runner.backend.shape, runner.device
    batch = largest_batch(sizes, shape.block_size)
    num_blocks = sum(len(part.sequence.block_table) for part in batch.scheduled)
    try:
        tried = runner.with_backend(make_backend(shape, num_blocks, 0, device))
        torch.cuda.reset_peak_memory_stats(device)
        tried.execute(batch)
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            f"A step of {sizes.num_tokens} tokens does not fit into the memory of the GPU.",
            "Lower --max-num-batched-tokens or --max-num-seqs, or choose a smaller model.",
        ) from error
    return torch.cuda.max_memory_allocated(device) - num_blocks * shape.block_bytes


def largest_batch(sizes: StepSizes, block_size: int) -> SchedulerOutput:
    """A prefill that fills the token budget with as many samples as it can; block ids count from 0.

    Args:
        sizes: of a step, at most.
        block_size: token slots in a block.
    """
    count = max(min(sizes.num_seqs, sizes.num_tokens), -(-sizes.num_tokens // sizes.model_len))
    lengths = [sizes.num_tokens // count + (i < sizes.num_tokens % count) for i in range(count)]
    scheduled, next_block = [], 0
    for seq_id, length in enumerate(lengths):
        num_blocks = -(-length // block_size)
        seq = Sequence(seq_id)
        seq.token_ids, seq.sampling_params = [0] * length, _SAMPLING
        seq.block_table = list(range(next_block, next_block + num_blocks))
        next_block += num_blocks
        scheduled.append(ScheduledSequence(seq, 0, length, True))
    return SchedulerOutput(0, scheduled, [], sizes.num_tokens)

"""What an engine must know of a loaded model, and what it tells of it. Collects, decides nothing."""

from dataclasses import dataclass
from typing import Literal

import torch

from pagedchat.config import EngineConfig
from pagedchat.engine.limits import EngineLimits
from pagedchat.events import EngineReady
from pagedchat.models.description import ModelDescription
from pagedchat.models.tokenizer import LoadedTokenizer
from pagedchat.ops.cpu.kernels import most_rows
from pagedchat.runtime.attention.backend import CacheShape
from pagedchat.runtime.attention.choice import BackendChoice
from pagedchat.runtime.loading.check_record import LeftOut
from pagedchat.runtime.loading.device import describe_device
from pagedchat.runtime.loading.pool_size import PoolSize
from pagedchat.runtime.loading.precision import Precision
from pagedchat.runtime.step.sizes import StepSizes

MOST_ROWS_ON_GPU = 256
"""Tokens of a step with drafts: a pass over as many takes little longer than one over few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What loading has found out."""

    config: EngineConfig
    description: ModelDescription
    tokenizer: LoadedTokenizer | None
    num_parameters: int
    device: torch.device
    shape: CacheShape
    sizes: StepSizes
    """Of a step, at most."""
    attention: BackendChoice
    kernels: Literal["cuda", "cpu", "torch"]
    """See `EngineReady`."""
    pool: PoolSize
    begins_ahead: bool
    """Whether the runner begins steps before it is asked for them."""
    precision: Precision
    left_out: tuple[LeftOut, ...] = ()
    """Captured steps that were not right."""


def engine_limits(found: Findings, eos_token_ids: frozenset[int]) -> EngineLimits:
    """What the engine keeps to."""
    config = found.config
    return EngineLimits(
        num_blocks=found.pool.num_blocks,
        num_host_blocks=found.pool.num_host_blocks,
        block_size=found.shape.block_size,
        model_len=found.sizes.model_len,
        vocab_size=found.description.vocab_size,
        max_num_seqs=found.sizes.num_seqs,
        max_num_batched_tokens=found.sizes.num_tokens,
        enable_prefix_caching=config.cache.enable_prefix_caching,
        preemption_mode=config.scheduler.preemption_mode,
        eos_token_ids=eos_token_ids,
        seed=config.seed,
        reserve_ahead=found.begins_ahead,
        speculation=config.speculation,
        most_draft_rows=most_rows() if found.device.type == "cpu" else min(MOST_ROWS_ON_GPU, found.sizes.num_seqs),
    )


def engine_ready(found: Findings, sampling_defaults: dict[str, object], load_seconds: float) -> EngineReady:
    """What the outside hears of the model."""
    description, shape, pool, tokenizer = found.description, found.shape, found.pool, found.tokenizer
    return EngineReady(
        model=description.name,
        architecture=description.architecture,
        num_parameters=found.num_parameters,
        dtype=str(shape.dtype).removeprefix("torch."),
        device=describe_device(found.device),
        num_layers=shape.num_layers,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        vocab_size=description.vocab_size,
        max_model_len=description.max_model_len,
        block_size=shape.block_size,
        num_blocks=pool.num_blocks,
        num_host_blocks=pool.num_host_blocks,
        block_bytes=shape.block_bytes,
        chat_template="model" if tokenizer and tokenizer.chat_template else "plain",
        sampling_defaults=sampling_defaults,
        load_seconds=load_seconds,
        attention_backend=found.attention.name,
        kernels=found.kernels,
        attention_reason=found.attention.reason,
        quantization=found.precision.quantization or (description.stored_as if found.precision.keeps_bits else ""),
        precision_reason=found.precision.reason,
        kv_cache_dtype=shape.kind or "",
    )

"""What an engine must know of a loaded model, and what it tells of it. Collects, decides nothing."""

from pagedchat.config import EngineConfig
from pagedchat.engine.limits import EngineLimits
from pagedchat.events import EngineReady
from pagedchat.models.description import ModelDescription
from pagedchat.models.tokenizer import LoadedTokenizer
from pagedchat.runtime.attention.choice import BackendChoice
from pagedchat.runtime.loading.device import describe_device
from pagedchat.runtime.loading.pool_size import PoolSize
from pagedchat.runtime.step.model_runner import TorchModelRunner


def engine_limits(
    config: EngineConfig,
    description: ModelDescription,
    pool: PoolSize,
    runner: TorchModelRunner,
    token_budget: int,
    eos_token_ids: frozenset[int],
) -> EngineLimits:
    """What the engine keeps to."""
    return EngineLimits(
        num_blocks=pool.num_blocks,
        num_host_blocks=pool.num_host_blocks,
        block_size=config.cache.block_size,
        model_len=description.max_model_len,
        max_num_seqs=config.scheduler.max_num_seqs,
        max_num_batched_tokens=token_budget,
        enable_prefix_caching=config.cache.enable_prefix_caching,
        preemption_mode=config.scheduler.preemption_mode,
        eos_token_ids=eos_token_ids,
        seed=config.seed,
        reserve_ahead=runner.decodes is not None,
    )


def engine_ready(
    description: ModelDescription,
    runner: TorchModelRunner,
    pool: PoolSize,
    attention: BackendChoice,
    tokenizer: LoadedTokenizer | None,
    num_parameters: int,
    sampling_defaults: dict[str, object],
    load_seconds: float,
) -> EngineReady:
    """What the outside hears of the model."""
    shape = runner.backend.shape
    return EngineReady(
        model=description.name,
        architecture=description.architecture,
        num_parameters=num_parameters,
        dtype=str(shape.dtype).removeprefix("torch."),
        device=describe_device(runner.device),
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
        attention_backend=attention.name,
        attention_reason=attention.reason,
    )

"""What a user may set, one frozen class per concern, checked once when it is made.

Nobody changes a config later. Sizes are bytes; `None` means "found out from the model or the machine".
"""

from dataclasses import dataclass, field
from typing import Literal

from pagedchat import bundled
from pagedchat.errors import InvalidValueError

Device = Literal["auto", "cpu", "cuda"]
DType = Literal["auto", "float32", "float16", "bfloat16"]
AttentionBackendName = Literal["auto", "cuda", "torch"]
ModelImplementation = Literal["auto", "native", "transformers"]
PreemptionMode = Literal["recompute", "swap"]

DEFAULT_MODEL = bundled.NAME
GIB = 1024**3


def _at_least(name: str, value: int | None, minimum: int, hint: str = "") -> None:
    if value is not None and value < minimum:
        raise InvalidValueError(f"{name} is {value}, but must be at least {minimum}.", hint)


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise InvalidValueError(f"{name} is {value!r}.", f"Choose one of {', '.join(map(str, allowed))}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Which model, and what it runs on."""

    model: str = DEFAULT_MODEL
    """A hub id (`facebook/opt-125m`), a folder with a checkpoint, or the model in the box."""
    tokenizer: str | None = None
    """Hub id or folder of the tokenizer; the model's own by default."""
    skip_tokenizer_init: bool = False
    """Token ids in and out only; no tokenizer is read."""
    device: Device = "auto"
    dtype: DType = "auto"
    """"auto": float32 on a CPU, the checkpoint's own type on a GPU."""
    attention_backend: AttentionBackendName = "auto"
    """"cuda": our kernels; "torch": plain torch; "auto": our kernels wherever they can serve the model."""
    implementation: ModelImplementation = "auto"
    """"native": our own modules; "transformers": its modules; "auto": ours wherever they know the model."""

    def __post_init__(self) -> None:
        _one_of("--device", self.device, ("auto", "cpu", "cuda"))
        _one_of("--dtype", self.dtype, ("auto", "float32", "float16", "bfloat16"))
        _one_of("--attention-backend", self.attention_backend, ("auto", "cuda", "torch"))
        _one_of("--model-implementation", self.implementation, ("auto", "native", "transformers"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """The KV cache: how large, in what pieces."""

    block_size: int = 16
    """Token slots in a block."""
    num_blocks: int | None = None
    """Fixes the pool; otherwise it comes from measured memory."""
    kv_cache_memory: int | None = None
    """Bytes for the pool; on a CPU a part of free memory (at most 4 GiB) by default."""
    gpu_memory_utilization: float = 0.9
    """Share of the GPU's memory for weights, activations and cache together."""
    swap_space: int = 4 * GIB
    """Bytes of host memory for blocks swapped out."""
    enable_prefix_caching: bool = True

    def __post_init__(self) -> None:
        _one_of("--block-size", self.block_size, (1, 2, 4, 8, 16, 32, 64, 128, 256))
        _at_least("--num-blocks", self.num_blocks, 1, "Leave it out to size the pool from free memory.")
        _at_least("--kv-cache-memory", self.kv_cache_memory, 1)
        _at_least("--swap-space", self.swap_space, 0)
        if not 0 < self.gpu_memory_utilization <= 1:
            raise InvalidValueError(
                f"--gpu-memory-utilization is {self.gpu_memory_utilization}.",
                "Give a share above 0, at most 1.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """What one step may hold, and how blocks are taken back when they run out."""

    max_num_seqs: int = 256
    max_num_batched_tokens: int | None = None
    """Token budget of a step; by default 512 on a CPU, 2048 to 8192 on a GPU, by the size of the model."""
    preemption_mode: PreemptionMode = "recompute"

    def __post_init__(self) -> None:
        _at_least("--max-num-seqs", self.max_num_seqs, 1)
        _at_least("--max-num-batched-tokens", self.max_num_batched_tokens, 1)
        _one_of("--preemption-mode", self.preemption_mode, ("recompute", "swap"))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """All that the engine process needs to know to start."""

    model: ModelConfig = field(default_factory=ModelConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    seed: int = 0
    """Seeds the choice of a request's seed where the request names none."""

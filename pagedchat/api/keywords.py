"""The keywords of `LLM` and `AsyncLLM`, named as vLLM's users know them, as a config. Knows words, no engine."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict

from pagedchat.api.kv_events import kv_events_of
from pagedchat.api.speculation import speculation_of
from pagedchat.config import (
    AttentionBackendName,
    CacheConfig,
    Device,
    DType,
    EngineConfig,
    KVCacheDType,
    KVEventsConfig,
    ModelConfig,
    ModelImplementation,
    PreemptionMode,
    QuantizationName,
    SchedulerConfig,
)
from pagedchat.units import parse_size
from pagedchat.vllm_keywords import LLM_KEYWORDS, check_keywords


class EngineKeywords(TypedDict, total=False):
    """What may be said of an engine besides its model; all that is left out, or None, is as `config.py` has it.

    Keywords of vLLM's that mean nothing here (`vllm_keywords`) are taken too, where nothing is asked for by them.
    """

    device: Device
    dtype: DType | Literal["half", "float"]
    quantization: QuantizationName | None
    attention_backend: AttentionBackendName
    model_implementation: ModelImplementation
    tensor_parallel_size: int
    batch_invariant: bool
    block_size: int
    num_blocks: int | None
    num_gpu_blocks_override: int | None
    """vLLM's name for `num_blocks`."""
    kv_cache_memory: int | str | None
    kv_cache_memory_bytes: int | None
    """vLLM's name for `kv_cache_memory`."""
    gpu_memory_utilization: float
    swap_space: int | str
    max_num_seqs: int
    max_num_batched_tokens: int | None
    enable_prefix_caching: bool | None
    kv_cache_dtype: KVCacheDType
    preemption_mode: PreemptionMode
    max_model_len: int | None
    enforce_eager: bool
    speculative_config: Mapping[str, Any] | None
    kv_events_config: Mapping[str, Any] | KVEventsConfig | None
    seed: int | None
    tokenizer: str | None
    skip_tokenizer_init: bool


_TYPES: dict[object, str] = {"half": "float16", "float": "float32"}
"""Other names that vLLM has for types."""
_MODEL = {
    **{name: name for name in ("device", "dtype", "quantization", "attention_backend", "batch_invariant")},
    **{name: name for name in ("max_model_len", "enforce_eager", "tokenizer", "skip_tokenizer_init")},
    "tensor_parallel_size": "tensor_parallel_size",
    "model_implementation": "implementation",
}
_OTHER_NAMES = {"num_gpu_blocks_override": "num_blocks", "kv_cache_memory_bytes": "kv_cache_memory"}
_CACHE = (
    "block_size", "num_blocks", "kv_cache_memory", "gpu_memory_utilization", "swap_space", "enable_prefix_caching",
    "kv_cache_dtype",
)  # fmt: skip
_SCHEDULER = ("max_num_seqs", "max_num_batched_tokens", "preemption_mode")
_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "dtype": lambda name: _TYPES.get(name, name),
    "kv_cache_memory": parse_size,
    "swap_space": parse_size,
}


def engine_config(call: str, model: str, keywords: Mapping[str, Any]) -> EngineConfig:
    """What a call asks for.

    Args:
        call: who was called, as `"LLM()"`, for messages.
        model: a hub id, a folder or a GGUF file, here or on the hub.
        keywords: `EngineKeywords`, and those of vLLM's that mean nothing here.

    Raises:
        InvalidValueError: a value outside what it may be, or one that has no meaning here and is not neutral.
        TypeError: a keyword that vLLM has not either.
    """
    known = EngineKeywords.__annotations__
    check_keywords(call, {name: value for name, value in keywords.items() if name not in known}, LLM_KEYWORDS)
    named = {_OTHER_NAMES.get(name, name): value for name, value in keywords.items() if value is not None}
    given = {name: _CONVERSIONS.get(name, _as_it_is)(value) for name, value in named.items() if name in known}
    return EngineConfig(
        model=ModelConfig(model=model, **{_MODEL[name]: value for name, value in given.items() if name in _MODEL}),
        cache=CacheConfig(**{name: value for name, value in given.items() if name in _CACHE}),
        scheduler=SchedulerConfig(**{name: value for name, value in given.items() if name in _SCHEDULER}),
        speculation=speculation_of(given.get("speculative_config")),
        kv_events=kv_events_of(given.get("kv_events_config")),
        **{name: value for name, value in given.items() if name == "seed"},
    )


def _as_it_is(value: Any) -> Any:
    return value

"""What a user may set, one frozen class per concern, checked once when it is made.

Nobody changes a config later. Sizes are bytes; `None` means "found out from the model or the machine".
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, Literal

from pagedchat import bundled
from pagedchat.bounds import (
    INT32_MAX,
    LEAST_ON_WIRE,
    MOST_ON_WIRE,
    Number,
    Whole,
    check_flag,
    check_text,
    refused,
    shown,
)
from pagedchat.errors import InvalidValueError

Device = Literal["auto", "cpu", "cuda"]
DType = Literal["auto", "float32", "float16", "bfloat16"]
AttentionBackendName = Literal["auto", "cuda", "torch"]
ModelImplementation = Literal["auto", "native", "transformers"]
QuantizationName = Literal["auto", "none", "int8", "int4", "fp8"]
KVCacheDType = Literal["auto", "fp8", "int8"]
PreemptionMode = Literal["recompute", "swap"]
SpeculationMethod = Literal["lookup", "model", "off"]
KVEventsEncoding = Literal["map", "array"]
KVEventsHashes = Literal["int", "bytes"]

DEFAULT_MODEL = bundled.NAME
GIB = 1024**3
MOST_BYTES = 2**60
MOST_RANKS = 64
"""More than any machine has."""
_LAST_PORT = 65_535


Check = Callable[[str, object], object]


class _Checked:
    """A config that is checked when it is made: fields are named as their options are, and numbers of other
    libraries become Python's own. `None` stays where it is a field's default.
    """

    __slots__ = ()
    _checks: ClassVar[dict[str, tuple[str, Check]]]
    """Option and check of every field."""

    def __post_init__(self) -> None:
        defaults = {field.name: field.default for field in fields(self)}  # type: ignore[arg-type]  # its heirs are
        for name, (option, check) in self._checks.items():
            given = getattr(self, name)
            if given is not None or defaults[name] is not None:
                object.__setattr__(self, name, check(option, given))


def _one_of(*allowed: str | int) -> Check:
    def check(name: str, value: object) -> object:
        if type(value) is not type(allowed[0]) or value not in allowed:
            raise InvalidValueError(f"{name} is {shown(value)}.", f"Choose one of {', '.join(map(str, allowed))}.")
        return value

    return check


def _name(option: str, value: object) -> str:
    """Of a model or a folder; a path is as good."""
    return check_text(option, os.fspath(value) if isinstance(value, os.PathLike) else value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig(_Checked):
    """Which model, and what it runs on."""

    model: str = DEFAULT_MODEL
    """A hub id (`facebook/opt-125m`; of a GGUF model `OWNER/NAME:Q4_K_M`), a folder with a checkpoint, a GGUF file,
    or the model in the box."""
    tokenizer: str | None = None
    """Hub id or folder of the tokenizer; the model's own by default."""
    skip_tokenizer_init: bool = False
    """Token ids in and out only; no tokenizer is read."""
    device: Device = "auto"
    dtype: DType = "auto"
    """"auto": on a GPU the checkpoint's own type; on a CPU bfloat16 for a large model of 16 bits where the
    processor multiplies that, else float32."""
    quantization: QuantizationName = "auto"
    """Of the weights while they are read: in 8 bits, in 4, in 8-bit floats (on a GPU), or as they are; "auto":
    whatever suits the machine."""
    attention_backend: AttentionBackendName = "auto"
    """"cuda": our kernels; "torch": plain torch; "auto": our kernels wherever they can serve the model."""
    implementation: ModelImplementation = "auto"
    """"native": our own modules; "transformers": its modules; "auto": ours wherever they know the model."""
    max_model_len: int | None = None
    """Tokens of a sequence, prompt and reply together, at most; by default as many as the model has positions."""
    enforce_eager: bool = False
    """No steps are captured as CUDA graphs: slower, and what runs is easier to look into."""
    tensor_parallel_size: int = 1
    """Processes that have a part of the model each, one to a GPU."""
    batch_invariant: bool = False
    """A reply is the same, bit for bit, alone and in any company; for models of our own modules, and slower."""

    _checks: ClassVar[dict[str, tuple[str, Check]]] = {
        "model": ("--model", _name),
        "tokenizer": ("--tokenizer", _name),
        "skip_tokenizer_init": ("skip_tokenizer_init", check_flag),
        "device": ("--device", _one_of("auto", "cpu", "cuda")),
        "dtype": ("--dtype", _one_of("auto", "float32", "float16", "bfloat16")),
        "quantization": ("--quantize", _one_of("auto", "none", "int8", "int4", "fp8")),
        "attention_backend": ("--attention-backend", _one_of("auto", "cuda", "torch")),
        "implementation": ("--model-implementation", _one_of("auto", "native", "transformers")),
        "max_model_len": ("--max-model-len", Whole(1, INT32_MAX).check),
        "enforce_eager": ("enforce_eager", check_flag),
        "tensor_parallel_size": ("--tensor-parallel-size", Whole(1, MOST_RANKS).check),
        "batch_invariant": ("--batch-invariant", check_flag),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig(_Checked):
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
    kv_cache_dtype: KVCacheDType = "auto"
    """"fp8" or "int8": one byte for each element of keys and values, with a scale for each token and head; "auto":
    the type that the model computes in."""

    _checks: ClassVar[dict[str, tuple[str, Check]]] = {
        "block_size": ("--block-size", _one_of(1, 2, 4, 8, 16, 32, 64, 128, 256)),
        "num_blocks": ("--num-blocks", Whole(1, INT32_MAX).check),
        "kv_cache_memory": ("--kv-cache-memory", Whole(1, MOST_BYTES).check),
        "gpu_memory_utilization": ("--gpu-memory-utilization", Number(0, 1, above=True).check),
        "swap_space": ("--swap-space", Whole(0, MOST_BYTES).check),
        "enable_prefix_caching": ("enable_prefix_caching", check_flag),
        "kv_cache_dtype": ("--kv-cache-dtype", _one_of("auto", "fp8", "int8")),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig(_Checked):
    """What one step may hold, and how blocks are taken back when they run out."""

    max_num_seqs: int = 256
    max_num_batched_tokens: int | None = None
    """Token budget of a step; by default 512 on a CPU, 2048 to 8192 on a GPU, by the size of the model."""
    preemption_mode: PreemptionMode = "recompute"

    _checks: ClassVar[dict[str, tuple[str, Check]]] = {
        "max_num_seqs": ("--max-num-seqs", Whole(1, 65536).check),
        "max_num_batched_tokens": ("--max-num-batched-tokens", Whole(1, 2**20).check),
        "preemption_mode": ("--preemption-mode", _one_of("recompute", "swap")),
    }


MOST_LOOKED_UP, MOST_BY_MODEL = 31, 15
"""Tokens of a draft where nobody says. One that is looked up costs its rows alone, and a GPU takes little longer
for 32 of them than for 16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationConfig(_Checked):
    """Whether tokens are guessed and several verified in one step."""

    method: SpeculationMethod = "off"
    """"lookup": what followed the last tokens earlier in prompt and reply; "model": what a small model says;
    "off": no drafts, save for requests that ask for them."""
    model: str | None = None
    """The draft model, a name or a folder as that of `ModelConfig`, of the same vocabulary; for "model" alone."""
    num_speculative_tokens: int | None = None
    """Of a draft, at most; by default `MOST_LOOKED_UP` or, where a model drafts, `MOST_BY_MODEL`."""
    prompt_lookup_max: int = 4
    """Last tokens that are compared, at most."""
    prompt_lookup_min: int = 2
    """That must agree, at least."""

    _checks: ClassVar[dict[str, tuple[str, Check]]] = {
        "method": ("--speculate", _one_of("lookup", "model", "off")),
        "model": ("--speculate", _name),
        "num_speculative_tokens": ("num_speculative_tokens", Whole(1, 64).check),
        "prompt_lookup_max": ("prompt_lookup_max", Whole(1, 64).check),
        "prompt_lookup_min": ("prompt_lookup_min", Whole(1, 64).check),
    }

    def most_drafted(self, method: SpeculationMethod) -> int:
        """Tokens of a draft by this method, at most."""
        return self.num_speculative_tokens or (MOST_BY_MODEL if method == "model" else MOST_LOOKED_UP)

    def __post_init__(self) -> None:
        _Checked.__post_init__(self)
        if (self.method == "model") != (self.model is not None):
            raise InvalidValueError(
                f"--speculate is {self.method!r}, and the draft model {shown(self.model)}.",
                "A draft model is named where one is to draft, and nowhere else.",
            )
        if self.prompt_lookup_min > self.prompt_lookup_max:
            raise InvalidValueError(
                f"prompt_lookup_min is {self.prompt_lookup_min}, prompt_lookup_max {self.prompt_lookup_max}.",
                "The first may be as large as the second, and no larger.",
            )


_TCP = re.compile(r"tcp://(\*|\[[0-9A-Fa-f:.%\w]+\]|[\w.-]+):(\*|\d{1,5})", re.ASCII)
_MOST_OF_PATH = 100
"""Bytes; an address of a local socket has no room for more."""


def _endpoint(option: str, value: object) -> str:
    """Where a socket of ZeroMQ's is to be, as `tcp://HOST:PORT` or `ipc://PATH`."""
    text = check_text(option, value)
    tcp = _TCP.fullmatch(text)
    path = text.removeprefix("ipc://")
    is_path = path not in ("", text) and "\0" not in path and len(os.fsencode(path)) <= _MOST_OF_PATH
    if not is_path and (tcp is None or (tcp[2] != "*" and int(tcp[2]) > _LAST_PORT)):
        raise refused(option, value, "like tcp://127.0.0.1:5557, tcp://*:5557 or ipc:///tmp/kv-events")
    return text


def _topic(option: str, value: object) -> str:
    """By which subscribers choose; it may be empty."""
    return "" if value == "" else check_text(option, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class KVEventsConfig(_Checked):
    """Whether others are told which blocks can be found, and how; see kv_events/."""

    kv_events_endpoint: str | None = None
    """Where events are published. This machine's own loopback, `*` and paths are bound, another host is connected
    to. Without it nothing is told."""
    kv_events_replay_endpoint: str | None = None
    """Where what was missed is asked for; always bound."""
    kv_events_topic: str = ""
    """The first frame of each message."""
    kv_events_buffer: int = 10_000
    """Batches that are kept for whoever missed them."""
    kv_events_hwm: int = 10_000
    """Batches that are held back for a subscriber that does not read; it misses those after them."""
    kv_events_encoding: KVEventsEncoding = "map"
    """Of events: as vLLM writes them now, or as arrays, as it did up to 0.23."""
    kv_events_hashes: KVEventsHashes = "int"
    """Blocks are known by 64 bits of their hash, as a number, or by all of it."""

    _checks: ClassVar[dict[str, tuple[str, Check]]] = {
        "kv_events_endpoint": ("--kv-events-endpoint", _endpoint),
        "kv_events_replay_endpoint": ("--kv-events-replay-endpoint", _endpoint),
        "kv_events_topic": ("--kv-events-topic", _topic),
        "kv_events_buffer": ("--kv-events-buffer", Whole(0, 1_000_000).check),
        "kv_events_hwm": ("--kv-events-hwm", Whole(1, 1_000_000).check),
        "kv_events_encoding": ("--kv-events-encoding", _one_of("map", "array")),
        "kv_events_hashes": ("--kv-events-hashes", _one_of("int", "bytes")),
    }

    def __post_init__(self) -> None:
        _Checked.__post_init__(self)
        if self.kv_events_replay_endpoint is not None and self.kv_events_endpoint is None:
            raise InvalidValueError(
                "There is --kv-events-replay-endpoint, but no --kv-events-endpoint.",
                "Say where events are published, too.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig(_Checked):
    """All that the engine process needs to know to start."""

    model: ModelConfig = field(default_factory=ModelConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)
    kv_events: KVEventsConfig = field(default_factory=KVEventsConfig)
    seed: int = 0
    """Seeds the choice of a request's seed where the request names none."""
    stands_beside: bool = False
    """Another engine is there already: this one takes what memory is left, or says before it reads any weights that
    it is too little."""

    _checks: ClassVar[dict[str, tuple[str, Check]]] = {
        "seed": ("--seed", Whole(LEAST_ON_WIRE, MOST_ON_WIRE).check),
        "stands_beside": ("stands_beside", check_flag),
    }

    def beside(self, model: str) -> "EngineConfig":
        """Of another engine with another model, for the memory that this one leaves."""
        return replace(
            self,
            model=replace(self.model, model=model, tokenizer=None),
            cache=replace(self.cache, gpu_memory_utilization=1.0),
            speculation=self.speculation if self.speculation.model is None else SpeculationConfig(),
            kv_events=KVEventsConfig(),  # the endpoints are taken
            stands_beside=True,
        )

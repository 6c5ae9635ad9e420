"""Loaders for engine processes without a model: `--loader tests.service.fake_engine:load_slow` and the like."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from pagedchat.config import EngineConfig
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.errors import DeviceError, ModelError
from pagedchat.events import EngineReady, LoadProgress
from pagedchat.runtime.loading.loaded import nothing_lost, nothing_more
from tests.fakes import CHAT_TEMPLATE, FakeModelRunner, byte_tokenizer, reciting

BLOCK_SIZE = 4
ENTRY = (sys.executable, "-m", "pagedchat.service.child", "--loader")
REPLY = "once upon a time there was a block </s>"


def ready_info(**changes: Any) -> EngineReady:
    fields = {
        "model": "fake", "architecture": "Fake", "num_parameters": 0, "dtype": "float32", "device": "cpu",
        "num_layers": 1, "num_kv_heads": 1, "head_dim": 1, "vocab_size": 260, "max_model_len": 1000,
        "block_size": BLOCK_SIZE, "num_blocks": 500, "num_host_blocks": 0, "block_bytes": BLOCK_SIZE,
        "chat_template": "model", "sampling_defaults": {}, "load_seconds": 0.0,
    }  # fmt: skip
    return EngineReady(**{**fields, **changes})


@dataclass
class FakeLoaded:
    """What `runtime.loading.build.LoadedModel` has."""

    runner: Any = field(default_factory=lambda: FakeModelRunner(block_size=BLOCK_SIZE))
    limits: EngineLimits = field(
        default_factory=lambda: EngineLimits(
            num_blocks=500, block_size=BLOCK_SIZE, model_len=1000, eos_token_ids=frozenset({1})
        )
    )
    info: EngineReady = field(default_factory=ready_info)
    tokenizer: Any = field(default_factory=byte_tokenizer)
    chat_template: str | None = CHAT_TEMPLATE
    special_tokens: dict[str, str] = field(default_factory=dict)
    sampling_defaults: SamplingParams = field(default_factory=lambda: SamplingParams(max_tokens=None))
    notices: tuple[str, ...] = ()
    grammars: Any = None
    draft: Any = None
    prepare_more: Callable[[], bool] = nothing_more
    tell_of_loss: Callable[[Callable[[], None]], None] = nothing_lost


def load(config: EngineConfig, progress: Any) -> FakeLoaded:
    """Recites `REPLY`, 2 ms a step."""
    progress(LoadProgress("weights", f"reading {config.model.model}", 1, 1, "tensors"))
    runner = FakeModelRunner(reciting(byte_tokenizer(), REPLY), BLOCK_SIZE, step_seconds=0.002)
    return FakeLoaded(runner)


def load_endless(config: EngineConfig, progress: Any) -> FakeLoaded:
    """Never ends a reply by itself, 5 ms a step: the context is full after 5 s."""
    return FakeLoaded(FakeModelRunner(block_size=BLOCK_SIZE, step_seconds=0.005))


def load_for_minutes(config: EngineConfig, progress: Any) -> FakeLoaded:
    """As `load_endless`, with a context that minutes do not fill: a slow machine does not see its end either."""
    length, block_size = 30_000, 64
    return replace(
        load_endless(config, progress),
        runner=FakeModelRunner(block_size=block_size, step_seconds=0.005),
        limits=EngineLimits(num_blocks=500, block_size=block_size, model_len=length, eos_token_ids=frozenset({1})),
        info=ready_info(max_model_len=length, block_size=block_size, block_bytes=block_size),
    )


def load_looping(config: EngineConfig, progress: Any) -> FakeLoaded:
    """As `load`, with a chat template that does not end where the first turn has "loop" in it."""
    loop = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    template = "{% if 'loop' in messages[0].content %}" + loop + "{% endif %}" + CHAT_TEMPLATE
    return replace(load(config, progress), chat_template=template)


def load_noticed(config: EngineConfig, progress: Any) -> FakeLoaded:
    """Loads, and has something to say about it."""
    return FakeLoaded(notices=("top_k is passed over.", "So is top_p."))


def load_missing(config: EngineConfig, progress: Any) -> FakeLoaded:
    raise ModelError(f"There is no model {config.model.model!r}.", "Check its name.")


def load_unless_missing(config: EngineConfig, progress: Any) -> FakeLoaded:
    """As `load`, by name; a model whose name has "missing" in it there is not."""
    if "missing" in config.model.model:
        return load_missing(config, progress)
    return replace(load(config, progress), info=ready_info(model=config.model.model))


def load_defect(config: EngineConfig, progress: Any) -> FakeLoaded:
    print("about to go wrong")
    raise KeyError("lm_head.weight")


class _Lost(FakeModelRunner):
    def check(self) -> None:
        raise DeviceError("Rank 1 was killed (SIGKILL).")


def load_lost(config: EngineConfig, progress: Any) -> FakeLoaded:
    """Loads, and loses a rank at once, with nothing to do."""
    return replace(load(config, progress), runner=_Lost(), tell_of_loss=lambda tell: tell())


def load_crash(config: EngineConfig, progress: Any) -> FakeLoaded:
    """Loads, and crashes in its first step."""
    loaded = load(config, progress)
    loaded.runner.fail_next = MemoryError("no memory for 3 GiB")
    return loaded

from dataclasses import FrozenInstanceError

import pytest

from pagedchat.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from pagedchat.errors import InvalidValueError


def test_defaults_are_those_of_the_documentation() -> None:
    config = EngineConfig()
    assert (config.model.model, config.model.device, config.model.dtype) == ("pagedchat-toy", "auto", "auto")
    assert (config.cache.block_size, config.cache.swap_space) == (16, 4 * 1024**3)
    assert (config.scheduler.max_num_seqs, config.scheduler.preemption_mode) == (256, "recompute")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: CacheConfig(num_blocks=0), "--num-blocks is 0, but must be at least 1."),
        (lambda: CacheConfig(block_size=7), "--block-size is 7."),
        (lambda: CacheConfig(kv_cache_memory=0), "--kv-cache-memory is 0, but must be at least 1."),
        (lambda: CacheConfig(swap_space=-1), "--swap-space is -1, but must be at least 0."),
        (lambda: CacheConfig(gpu_memory_utilization=1.5), "--gpu-memory-utilization is 1.5."),
        (lambda: SchedulerConfig(max_num_seqs=0), "--max-num-seqs is 0, but must be at least 1."),
        (
            lambda: SchedulerConfig(max_num_batched_tokens=0),
            "--max-num-batched-tokens is 0, but must be at least 1.",
        ),
        (lambda: SchedulerConfig(preemption_mode="drop"), "--preemption-mode is 'drop'."),  # type: ignore[arg-type]
        (lambda: ModelConfig(device="tpu"), "--device is 'tpu'."),  # type: ignore[arg-type]
        (lambda: ModelConfig(dtype="int3"), "--dtype is 'int3'."),  # type: ignore[arg-type]
        (lambda: ModelConfig(attention_backend="flash"), "--attention-backend is 'flash'."),  # type: ignore[arg-type]
    ],
)
def test_value_out_of_range_is_named_with_its_option(make, sentence: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        make()
    assert caught.value.message == sentence


def test_choices_are_listed_in_the_hint() -> None:
    with pytest.raises(InvalidValueError) as caught:
        ModelConfig(device="tpu")  # type: ignore[arg-type]
    assert caught.value.hint == "Choose one of auto, cpu, cuda."


def test_nobody_changes_a_config_later() -> None:
    with pytest.raises(FrozenInstanceError):
        CacheConfig().block_size = 32  # type: ignore[misc]

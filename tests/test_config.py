import math
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from pagedchat.config import (
    CacheConfig,
    EngineConfig,
    KVEventsConfig,
    ModelConfig,
    SchedulerConfig,
    SpeculationConfig,
)
from pagedchat.errors import InvalidValueError


def test_defaults_are_those_of_the_documentation() -> None:
    config = EngineConfig()
    assert (config.model.model, config.model.device, config.model.dtype) == ("pagedchat-toy", "auto", "auto")
    assert (config.cache.block_size, config.cache.swap_space) == (16, 4 * 1024**3)
    assert (config.scheduler.max_num_seqs, config.scheduler.preemption_mode) == (256, "recompute")


SEQS, TOKENS = "a whole number from 1 to 65536", "a whole number from 1 to 1048576"
BLOCKS, BYTES = "a whole number from 1 to 2147483647", "a whole number from 1 to 1152921504606846976"
SHARE, TEXT = "a number above 0, up to 1", "a text that is not empty, in valid Unicode"
REFUSED: list[tuple[type, dict[str, Any], str]] = [
    (CacheConfig, {"num_blocks": 0}, f"--num-blocks is 0. It must be {BLOCKS}."),
    (CacheConfig, {"num_blocks": 2**31}, f"--num-blocks is 2147483648. It must be {BLOCKS}."),
    (CacheConfig, {"num_blocks": 1.5}, f"--num-blocks is 1.5. It must be {BLOCKS}."),
    (CacheConfig, {"num_blocks": "8"}, f"--num-blocks is '8'. It must be {BLOCKS}."),
    (CacheConfig, {"kv_cache_memory": 0}, f"--kv-cache-memory is 0. It must be {BYTES}."),
    (CacheConfig, {"kv_cache_memory": 2**64}, f"--kv-cache-memory is {2**64}. It must be {BYTES}."),
    (CacheConfig, {"swap_space": -1}, f"--swap-space is -1. It must be {BYTES.replace('1', '0', 1)}."),
    (CacheConfig, {"swap_space": None}, f"--swap-space is None. It must be {BYTES.replace('1', '0', 1)}."),
    (CacheConfig, {"enable_prefix_caching": 1}, "enable_prefix_caching is 1. It must be true or false."),
    *[
        (
            KVEventsConfig,
            {"kv_events_endpoint": wrong},
            f"--kv-events-endpoint is {wrong!r}. It must be like tcp://127.0.0.1:5557, tcp://*:5557 or "
            "ipc:///tmp/kv-events.",
        )
        for wrong in (
            "127.0.0.1:5557",
            "tcp://127.0.0.1",
            "tcp://:5557",
            "tcp://*:65536",
            "tcp://a b:1",
            "udp://*:1",
            "ipc://",
            "tcp://*:1\n",
            f"ipc:///{'a' * 41}\x00",
        )
    ],
    (KVEventsConfig, {"kv_events_endpoint": ""}, f"--kv-events-endpoint is ''. It must be {TEXT}."),
    (
        KVEventsConfig,
        {"kv_events_replay_endpoint": "tcp://*:5558"},
        "There is --kv-events-replay-endpoint, but no --kv-events-endpoint. Say where events are published, too.",
    ),
    (
        KVEventsConfig,
        {"kv_events_encoding": "json"},
        "--kv-events-encoding is 'json'. Choose one of map, array.",
    ),
    (
        KVEventsConfig,
        {"kv_events_hashes": "hex"},
        "--kv-events-hashes is 'hex'. Choose one of int, bytes.",
    ),
    (
        KVEventsConfig,
        {"kv_events_buffer": -1},
        "--kv-events-buffer is -1. It must be a whole number from 0 to 1000000.",
    ),
    (KVEventsConfig, {"kv_events_hwm": 0}, "--kv-events-hwm is 0. It must be a whole number from 1 to 1000000."),
    (KVEventsConfig, {"kv_events_topic": 5}, f"--kv-events-topic is 5. It must be {TEXT}."),
    (SchedulerConfig, {"max_num_seqs": 0}, f"--max-num-seqs is 0. It must be {SEQS}."),
    (SchedulerConfig, {"max_num_seqs": 10**9}, f"--max-num-seqs is 1000000000. It must be {SEQS}."),
    (SchedulerConfig, {"max_num_seqs": True}, f"--max-num-seqs is True. It must be {SEQS}."),
    (SchedulerConfig, {"max_num_batched_tokens": 0}, f"--max-num-batched-tokens is 0. It must be {TOKENS}."),
    (
        SchedulerConfig,
        {"max_num_batched_tokens": 2**63},
        f"--max-num-batched-tokens is {2**63}. It must be {TOKENS}.",
    ),
    (ModelConfig, {"model": ""}, f"--model is ''. It must be {TEXT}."),
    (ModelConfig, {"model": None}, f"--model is None. It must be {TEXT}."),
    (ModelConfig, {"model": "caf\udce9"}, f"--model is 'caf\\udce9'. It must be {TEXT}."),
    (ModelConfig, {"tokenizer": 5}, f"--tokenizer is 5. It must be {TEXT}."),
    (ModelConfig, {"skip_tokenizer_init": "no"}, "skip_tokenizer_init is 'no'. It must be true or false."),
    (ModelConfig, {"max_model_len": 0}, f"--max-model-len is 0. It must be {BLOCKS}."),
    (ModelConfig, {"enforce_eager": None}, "enforce_eager is None. It must be true or false."),
    *[
        (
            EngineConfig,
            {"seed": seed},
            f"--seed is {seed!r}. It must be a whole number from {-(2**63)} to {2**64 - 1}.",
        )
        for seed in (10**23 - 1, 2**64, -(2**63) - 1, 0.5, None, True)
    ],
    (EngineConfig, {"stands_beside": "yes"}, "stands_beside is 'yes'. It must be true or false."),
    *[
        (SpeculationConfig, {name: 65}, f"{name} is 65. It must be a whole number from 1 to 64.")
        for name in ("num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min")
    ],
    *[
        (CacheConfig, {"gpu_memory_utilization": x}, f"--gpu-memory-utilization is {x!r}. It must be {SHARE}.")
        for x in (0, 1.5, math.nan, math.inf, "0.9", None)
    ],
]
CHOICES: list[tuple[type, dict[str, Any], str]] = [
    (CacheConfig, {"block_size": 7}, "--block-size is 7."),
    (CacheConfig, {"block_size": 16.0}, "--block-size is 16.0."),
    (CacheConfig, {"block_size": True}, "--block-size is True."),
    (CacheConfig, {"kv_cache_dtype": "fp4"}, "--kv-cache-dtype is 'fp4'."),
    (SchedulerConfig, {"preemption_mode": "drop"}, "--preemption-mode is 'drop'."),
    (ModelConfig, {"device": "tpu"}, "--device is 'tpu'."),
    (ModelConfig, {"device": None}, "--device is None."),
    (ModelConfig, {"dtype": "int3"}, "--dtype is 'int3'."),
    (ModelConfig, {"dtype": ["float16"]}, "--dtype is ['float16']."),
    (ModelConfig, {"quantization": "int5"}, "--quantize is 'int5'."),
    (ModelConfig, {"quantization": None}, "--quantize is None."),
    (ModelConfig, {"attention_backend": "flash"}, "--attention-backend is 'flash'."),
    (ModelConfig, {"implementation": "jax"}, "--model-implementation is 'jax'."),
    (ModelConfig, {"tensor_parallel_size": "two"}, "--tensor-parallel-size is 'two'."),
    (ModelConfig, {"batch_invariant": "yes"}, "--batch-invariant is 'yes'."),
    (SpeculationConfig, {"method": "eagle"}, "--speculate is 'eagle'."),
    (SpeculationConfig, {"model": ""}, "--speculate is ''."),
    (SpeculationConfig, {"model": "small"}, "--speculate is 'off', and the draft model 'small'."),
]


@pytest.mark.parametrize(("config", "values", "sentence"), REFUSED)
def test_value_out_of_range_is_named_with_its_option_and_the_range(
    config: type, values: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        config(**values)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(("config", "values", "sentence"), CHOICES)
def test_value_that_is_no_choice_is_named_with_its_option(
    config: type, values: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        config(**values)
    assert caught.value.message == sentence


PARTS = ("model", "cache", "scheduler", "speculation", "kv_events")


def test_every_field_has_its_check() -> None:
    tried = {(config, name) for config, values, _ in REFUSED + CHOICES for name in values}
    configs = (ModelConfig, CacheConfig, SchedulerConfig, SpeculationConfig, KVEventsConfig, EngineConfig)
    every = {(config, field.name) for config in configs for field in fields(config)}
    assert every - tried == {(EngineConfig, name) for name in PARTS}


def test_values_of_other_libraries_become_pythons_own() -> None:
    config = CacheConfig(num_blocks=np.int64(8), gpu_memory_utilization=np.float32(0.5))
    assert (type(config.num_blocks), type(config.gpu_memory_utilization)) == (int, float)
    assert ModelConfig(model=Path("a/b")).model == "a/b"  # type: ignore[arg-type]


def test_whatever_is_allowed_can_go_over_the_wire() -> None:
    most = EngineConfig(cache=CacheConfig(num_blocks=2**31 - 1, kv_cache_memory=2**60), seed=2**64 - 1)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(most), type=EngineConfig) == most


def test_choices_are_listed_in_the_hint() -> None:
    with pytest.raises(InvalidValueError) as caught:
        ModelConfig(device="tpu")  # type: ignore[arg-type]
    assert caught.value.hint == "Choose one of auto, cpu, cuda."


def test_nobody_changes_a_config_later() -> None:
    with pytest.raises(FrozenInstanceError):
        CacheConfig().block_size = 32  # type: ignore[misc]


def test_of_two_engines_side_by_side_the_first_one_tells_of_its_blocks() -> None:
    config = EngineConfig(kv_events=KVEventsConfig(kv_events_endpoint="tcp://*:5557"))
    assert config.beside("m").kv_events == KVEventsConfig()


def test_a_model_drafts_fewer_tokens_than_are_looked_up_and_a_number_counts_for_both() -> None:
    assert (SpeculationConfig().most_drafted("lookup"), SpeculationConfig().most_drafted("model")) == (31, 15)
    config = SpeculationConfig(num_speculative_tokens=4)
    assert (config.most_drafted("lookup"), config.most_drafted("model")) == (4, 4)

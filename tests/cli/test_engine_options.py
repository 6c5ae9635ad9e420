"""Options of the engine and of sampling reach the fields they are named after."""

import pytest

from pagedchat.cli.engine_options import engine_config, sampling_overrides
from pagedchat.cli.options import parse_args
from pagedchat.config import EngineConfig, SpeculationConfig
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.errors import InvalidValueError


def words(line: str) -> list[str]:
    return line.split()


def test_no_arguments_give_the_default_config() -> None:
    args = parse_args([])
    assert engine_config(args) == EngineConfig()
    assert sampling_overrides(args) == SamplingOverrides()
    assert (args.command, args.sessions, args.prompt, args.raw) == ("chat", 1, None, False)


def test_every_engine_option_reaches_its_field() -> None:
    argv = words(
        "--model m --tokenizer t --device cpu --dtype float16 --attention-backend torch"
        " --block-size 32 --num-blocks 7 --kv-cache-memory 2GiB --gpu-memory-utilization 0.5 --swap-space 1MiB"
        " --no-prefix-caching --max-num-seqs 3 --max-num-batched-tokens 64 --preemption-mode swap --seed 9"
        " --max-model-len 512"
    )
    config = engine_config(parse_args(argv))
    assert (config.model.model, config.model.tokenizer, config.seed) == ("m", "t", 9)
    assert (config.model.device, config.model.dtype) == ("cpu", "float16")
    assert config.model.attention_backend == "torch"
    assert (config.cache.block_size, config.cache.num_blocks) == (32, 7)
    assert (config.cache.kv_cache_memory, config.cache.swap_space) == (2 * 1024**3, 1024**2)
    assert (config.cache.gpu_memory_utilization, config.cache.enable_prefix_caching) == (0.5, False)
    assert (config.scheduler.max_num_seqs, config.scheduler.max_num_batched_tokens) == (3, 64)
    assert config.scheduler.preemption_mode == "swap"
    assert config.model.max_model_len == 512


def test_every_sampling_option_reaches_its_field() -> None:
    argv = words(
        "--temperature 0 --top-p 0.9 --top-k 5 --min-p 0.1 --repetition-penalty 1.2 --presence-penalty 0.5"
        " --frequency-penalty -0.5 --max-tokens 8 --stop a --stop b"
    )
    assert sampling_overrides(parse_args(argv)) == SamplingOverrides(
        temperature=0,
        top_p=0.9,
        top_k=5,
        min_p=0.1,
        repetition_penalty=1.2,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        max_tokens=8,
        stop=["a", "b"],
    )


def test_seed_belongs_to_the_engine_so_that_panes_differ() -> None:
    assert sampling_overrides(parse_args(["--seed", "3"])).seed is None


def test_a_draft_model_is_the_engines_and_a_word_is_the_chats() -> None:
    args = parse_args(["--speculate", "small/model"])
    assert engine_config(args).speculation == SpeculationConfig(method="model", model="small/model")
    assert sampling_overrides(args).speculate is None
    args = parse_args(["--speculate", "lookup"])
    assert engine_config(args).speculation == SpeculationConfig()
    assert sampling_overrides(args).speculate == "lookup"
    with pytest.raises(InvalidValueError, match="--speculate is ''"):
        engine_config(parse_args(["--speculate", ""]))

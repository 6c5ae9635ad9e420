"""vLLM's names are where its users' scripts look for them, and its command line is ours."""

import argparse
from dataclasses import asdict

import pytest

import pagedchat.vllm
from pagedchat.api.keywords import EngineKeywords
from pagedchat.config import EngineConfig
from pagedchat.errors import InvalidValueError
from pagedchat.vllm import EngineArgs
from pagedchat.vllm.distributed import cleanup_dist_env_and_memory
from pagedchat.vllm.inputs import PromptType, TokensPrompt
from pagedchat.vllm.outputs import RequestOutput
from pagedchat.vllm.sampling_params import BeamSearchParams, SamplingParams, StructuredOutputsParams
from pagedchat.vllm.utils import FlexibleArgumentParser
from pagedchat.vllm_keywords import LLM_KEYWORDS


def parsed(*argv: str) -> argparse.Namespace:
    parser = FlexibleArgumentParser()
    assert EngineArgs.add_cli_args(parser) is parser
    parser.add_argument("--max-tokens", type=int)
    return parser.parse_args(argv)


@pytest.mark.parametrize("name", pagedchat.vllm.__all__)
def test_every_name_of_the_package_is_there(name: str) -> None:
    assert getattr(pagedchat.vllm, name).__name__


def test_names_of_its_modules_are_those_of_the_library() -> None:
    assert pagedchat.vllm.RequestOutput is RequestOutput is pagedchat.RequestOutput
    assert pagedchat.vllm.SamplingParams is SamplingParams is pagedchat.SamplingParams
    assert pagedchat.vllm.BeamSearchParams is BeamSearchParams is pagedchat.BeamSearchParams
    assert StructuredOutputsParams is pagedchat.StructuredOutputsParams
    assert PromptType is not None
    assert TokensPrompt(prompt_token_ids=[1]) == {"prompt_token_ids": [1]}
    cleanup_dist_env_and_memory()
    with pytest.raises(AttributeError, match=r"pagedchat\.vllm.*PoolingParams"):
        _ = pagedchat.vllm.PoolingParams


def test_arguments_are_the_keywords_of_the_library_and_change_nothing_by_themselves() -> None:
    assert set(asdict(EngineArgs())) == {"model", *EngineKeywords.__annotations__, *LLM_KEYWORDS}
    assert EngineArgs().create_engine_config() == EngineConfig()
    assert EngineArgs("a/b").create_engine_config().model.model == "a/b"


def test_a_command_line_becomes_arguments() -> None:
    args = parsed(
        "--model", "a/b", "--max_model_len", "100", "--enforce-eager", "--gpu-memory-utilization=0.5",
        "--max_tokens=3", "--no-enable-prefix-caching", "--dtype", "half", "--swap-space", "1GiB",
        "--trust-remote-code", "--tokenizer", "c", "--speculative-config", '{"method": "ngram"}',
    )  # fmt: skip
    assert args.max_tokens == 3
    config = EngineArgs.from_cli_args(argparse.Namespace(**{**vars(args), "trust_remote_code": None}))
    made = config.create_engine_config()
    assert (made.model.model, made.model.max_model_len, made.model.enforce_eager) == ("a/b", 100, True)
    assert (made.model.dtype, made.model.tokenizer, made.speculation.method) == ("float16", "c", "lookup")
    assert (made.cache.gpu_memory_utilization, made.cache.enable_prefix_caching) == (0.5, False)
    assert made.cache.swap_space == 1 << 30
    with pytest.raises(InvalidValueError, match="trust_remote_code is True"):
        EngineArgs.from_cli_args(args).create_engine_config()


def test_what_is_no_argument_is_told_as_by_the_library() -> None:
    with pytest.raises(InvalidValueError, match="--block-size is 3"):
        EngineArgs(block_size=3).create_engine_config()
    with pytest.raises(TypeError, match="nonsense"):
        EngineArgs(nonsense=1)

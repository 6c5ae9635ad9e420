"""What is read from config.json for our own modules is what transformers reads, or it is left to transformers."""

import json
import logging
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, MistralConfig, OPTConfig, Qwen2Config, Qwen3Config

from pagedchat.config import ModelConfig
from pagedchat.errors import InvalidValueError, ModelError
from pagedchat.layers.rotary_frequencies import RotaryConfig
from pagedchat.models.config import describe_model
from pagedchat.models.decoder_config import DecoderConfig
from pagedchat.models.description import ModelDescription

FAMILIES = ["opt", "llama", "mistral", "qwen2", "qwen3"]


def write(folder: Path, **values: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def read_native(folder: Path, **values: Any) -> DecoderConfig:
    native = describe_model("m", write(folder, **values), "native").native
    assert isinstance(native, DecoderConfig)
    return native


def assert_same(folder: Path) -> ModelDescription:
    ours, theirs = (describe_model("m", folder, implementation) for implementation in ("native", "transformers"))
    for field in fields(ModelDescription):
        if field.name not in ("config", "native"):
            assert getattr(ours, field.name) == getattr(theirs, field.name), field.name
    return ours


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_config_leaves_out(family: str, tmp_path: Path) -> None:
    assert_same(write(tmp_path, model_type=family))


@pytest.mark.parametrize(
    "config",
    [
        OPTConfig(hidden_size=96, num_attention_heads=4, word_embed_proj_dim=32, dtype="float16"),
        LlamaConfig(num_key_value_heads=8, head_dim=48, eos_token_id=[7, 8], dtype="bfloat16"),
        MistralConfig(sliding_window=None, vocab_size=99, eos_token_id=None),
        Qwen2Config(hidden_size=64, num_attention_heads=8, num_key_value_heads=2, max_position_embeddings=100),
        Qwen3Config(num_hidden_layers=3, head_dim=64, eos_token_id=4),
    ],
    ids=FAMILIES,
)
def test_what_transformers_saves(config: Any, tmp_path: Path) -> None:
    config.save_pretrained(tmp_path)
    assert_same(tmp_path)


def test_files_of_older_versions(tmp_path: Path) -> None:
    write(
        tmp_path, model_type="llama", torch_dtype="float16", rope_theta=500.0, rope_scaling=None, eos_token_id=None
    )
    described = assert_same(tmp_path)
    assert described.dtype == torch.float16
    assert isinstance(described.native, DecoderConfig)
    assert described.native.rotary == RotaryConfig(500.0)


def test_windows_of_layers(tmp_path: Path) -> None:
    shape: dict[str, Any] = {"num_hidden_layers": 4, "sliding_window": 8}
    assert read_native(tmp_path, model_type="mistral", **shape).windows == (8, 8, 8, 8)
    assert read_native(tmp_path, model_type="qwen2", **shape).windows == (None,) * 4
    some = shape | {"use_sliding_window": True, "max_window_layers": 3}
    assert read_native(tmp_path, model_type="qwen2", **some).windows == (None, None, None, 8)
    types = ["sliding_attention", "full_attention"] * 2
    assert read_native(tmp_path, model_type="qwen3", **some, layer_types=types).windows == (8, None, 8, None)


@pytest.mark.parametrize(
    ("family", "values", "words"),
    [
        ("bloom", {}, "no module for 'bloom'"),
        ("llama", {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}, "rope_type is 'dynamic'"),
        ("llama", {"rope_parameters": {"full_attention": {"rope_theta": 1.0}}}, "rotary parameters"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ("llama", {"hidden_act": "quick_gelu"}, "hidden_act is 'quick_gelu'"),
        ("llama", {"quantization_config": {"bits": 4}}, "quantization_config"),
        ("llama", {"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
        ("llama", {"num_key_value_heads": 5}, "32 over 5"),
        ("llama", {"vocab_size": "many"}, "vocab_size is 'many'"),
        ("llama", {"tie_word_embeddings": None}, "tie_word_embeddings is None"),
        ("qwen2", {"layer_types": ["chunked_attention"] * 32}, "chunked_attention"),
        ("mistral", {"layer_types": ["full_attention"] * 32}, "layer_types"),
        ("opt", {"hidden_size": 100, "num_attention_heads": 7}, "7 heads"),
    ],
)
def test_what_is_left_to_transformers(family: str, values: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no native implementation for m, since") as caught:
        describe_model("m", write(tmp_path, model_type=family, **values), "native")
    assert words in caught.value.message
    assert "--model-implementation" in caught.value.hint


def test_the_log_says_why_transformers_runs_a_model(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pagedchat")
    rope = {"rope_type": "dynamic", "factor": 4.0}
    described = describe_model("m", write(tmp_path, model_type="llama", rope_scaling=rope))
    assert described.native is None
    assert described.config is not None
    assert "m runs through transformers, since its rope_type is 'dynamic'" in caplog.text


def test_implementation_that_there_is_not() -> None:
    with pytest.raises(InvalidValueError, match="--model-implementation is 'jax'"):
        ModelConfig(implementation="jax")  # type: ignore[arg-type]


def test_transformers_can_be_asked_for(tmp_path: Path) -> None:
    assert describe_model("m", write(tmp_path, model_type="opt"), "transformers").native is None

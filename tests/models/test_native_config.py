"""What is read from config.json for our own modules is what transformers reads, or it is left to transformers."""

import copy
import json
import logging
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, LlamaConfig, MistralConfig, OPTConfig, Qwen2Config, Qwen3Config

from pagedchat.config import ModelConfig
from pagedchat.errors import InvalidValueError, ModelError
from pagedchat.layers.alibi import Alibi
from pagedchat.layers.rotary_frequencies import RotaryConfig
from pagedchat.models.config import describe_model
from pagedchat.models.decoder_config import DecoderConfig, QkNorm
from pagedchat.models.description import ModelDescription
from pagedchat.models.native import build, read_native
from tests.models.families.tiny_families import CONFIGS, ONLY_OURS


def write(folder: Path, **values: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def read(folder: Path, **values: Any) -> DecoderConfig:
    native = describe_model("m", write(folder, **values), "native").native
    assert isinstance(native, DecoderConfig)
    return native


def assert_same(folder: Path) -> ModelDescription:
    ours, theirs = (describe_model("m", folder, implementation) for implementation in ("native", "transformers"))
    for field in fields(ModelDescription):
        if field.name not in ("config", "native"):
            assert getattr(ours, field.name) == getattr(theirs, field.name), field.name
    return ours


@pytest.mark.parametrize("family", sorted({config.model_type for config in CONFIGS.values()} - {*ONLY_OURS}))
def test_what_a_config_leaves_out(family: str, tmp_path: Path) -> None:
    assert_same(write(tmp_path, model_type=family))


OLD_FORMS: list[dict[str, Any]] = [
    {"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 4.0}},
    {"model_type": "qwen3", "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 16}},
    {"model_type": "ministral", "layer_types": ["full_attention"] * 32},
    {"model_type": "smollm3", "rope_theta": 5e6, "no_rope_layer_interval": 3},
    {"model_type": "smollm3", "use_sliding_window": True, "sliding_window": 100},
    {"model_type": "granite", "attention_multiplier": 0.0078125, "rope_theta": 1e7},
    {"model_type": "gemma", "hidden_act": "gelu", "hidden_activation": None},
    {"model_type": "gemma2", "query_pre_attn_scalar": 224, "final_logit_softcapping": None},
    {
        "model_type": "gemma3_text", "rope_theta": 5e5, "rope_local_base_freq": 2e4, "sliding_window_pattern": 3,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
    {"model_type": "phi", "partial_rotary_factor": 0.25, "rope_scaling": None},
    {
        "model_type": "phi3", "max_position_embeddings": 131072, "partial_rotary_factor": 0.75,
        "rope_scaling": {"type": "longrope", "short_factor": [1.1] * 36, "long_factor": [2.0] * 36},
    },
    {"model_type": "gpt2", "n_inner": 100, "activation_function": "gelu"},
    {"model_type": "gptj", "rotary_dim": 32},
    {"model_type": "gpt_neox", "rotary_pct": 0.5, "rotary_emb_base": 20000},
    {
        "model_type": "olmo3", "rope_theta": 5e5,
        "rope_scaling": {
            "rope_type": "yarn", "factor": 8.0, "attention_factor": 1.2, "original_max_position_embeddings": 1024,
        },
    },
    {"model_type": "stablelm", "partial_rotary_factor": 0.5, "rope_theta": 1e5},
    {"model_type": "cohere", "rope_theta": 8e6, "use_qk_norm": True},
    {"model_type": "cohere2", "rope_theta": 5e4, "sliding_window_pattern": 2},
    {"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 1},
    {"model_type": "falcon", "alibi": True, "multi_query": False, "parallel_attn": False, "bias": True},
    {"model_type": "bloom", "num_hidden_layers": 3, "num_attention_heads": 16, "n_embed": 128, "seq_length": 512},
    {"model_type": "mpt", "attn_config": {"clip_qkv": 8.0, "alibi_bias_max": 16, "softmax_scale": 0.05}},
    {"model_type": "mixtral", "rope_theta": 1e6, "sliding_window": None, "num_local_experts": 16},
    {"model_type": "qwen2_moe", "use_sliding_window": True, "sliding_window": 100, "max_window_layers": 5},
    {"model_type": "qwen2_moe", "decoder_sparse_step": 2, "mlp_only_layers": [3, 5], "norm_topk_prob": True},
    {"model_type": "qwen3_moe", "num_experts": 60, "head_dim": 128, "rope_theta": 1e6, "mlp_only_layers": [0]},
    {"model_type": "olmoe", "clip_qkv": 8.0, "norm_topk_prob": True, "num_key_value_heads": 4},
    {"model_type": "gpt_oss", "num_hidden_layers": 3, "sliding_window": 50, "rope_theta": 150000},
]  # fmt: skip


@pytest.mark.parametrize(
    "values",
    [
        *({"model_type": family} for family in sorted({config.model_type for config in CONFIGS.values()})),
        *OLD_FORMS,
    ],
    ids=lambda values: "-".join(values).replace("model_type", values["model_type"]),
)
def test_every_form_means_what_transformers_makes_of_it(values: dict[str, Any]) -> None:
    given = copy.deepcopy(values)
    theirs = AutoConfig.for_model(given.pop("model_type"), **given).to_dict()
    theirs["architectures"] = None
    assert read_native(values).config == read_native(theirs).config


@pytest.mark.parametrize(
    "config",
    [
        OPTConfig(hidden_size=96, num_attention_heads=4, word_embed_proj_dim=32, dtype="float16"),
        LlamaConfig(num_key_value_heads=8, head_dim=48, eos_token_id=[7, 8], dtype="bfloat16"),
        MistralConfig(sliding_window=None, vocab_size=99, eos_token_id=None),
        Qwen2Config(hidden_size=64, num_attention_heads=8, num_key_value_heads=2, max_position_embeddings=100),
        Qwen3Config(num_hidden_layers=3, head_dim=64, eos_token_id=4),
    ],
    ids=["opt", "llama", "mistral", "qwen2", "qwen3"],
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
    assert read(tmp_path, model_type="mistral", **shape).windows == (8, 8, 8, 8)
    assert read(tmp_path, model_type="qwen2", **shape).windows == (None,) * 4
    some = shape | {"use_sliding_window": True, "max_window_layers": 3}
    assert read(tmp_path, model_type="qwen2", **some).windows == (None, None, None, 8)
    types = ["sliding_attention", "full_attention"] * 2
    assert read(tmp_path, model_type="qwen3", **some, layer_types=types).windows == (8, None, 8, None)


def test_what_mpt_norms_and_how_far_its_scores_fall(tmp_path: Path) -> None:
    """Of which transformers takes no account."""
    attention = {"qk_ln": True, "alibi_bias_max": 16}
    config = read(tmp_path, model_type="mpt", d_model=32, n_layers=1, n_heads=4, attn_config=attention)
    assert config.alibi == Alibi(max_bias=16.0)
    assert config.qk_norm == QkNorm(config.norm, over="width")
    places = build(config).places()
    for name in ("q_ln", "k_ln"):
        assert places[f"transformer.blocks.0.attn.{name}.weight"].shape == (32,)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_sinks_have_a_name_and_are_float32(dtype: torch.dtype) -> None:
    llama = read_native({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 9}).config
    torch.set_default_dtype(dtype)
    try:
        places = build(replace(llama, sinks=True)).places()
    finally:
        torch.set_default_dtype(torch.float32)
    for layer in range(2):
        place = places[f"model.layers.{layer}.self_attn.sinks"]
        assert (place.shape, place.dtype) == ((llama.heads.num_heads,), torch.float32)


@pytest.mark.parametrize(
    ("family", "values", "words"),
    [
        ("xglm", {}, "no module for 'xglm'"),
        ("llama", {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}, "rope_type is 'dynamic'"),
        ("llama", {"rope_parameters": {"full_attention": {"rope_theta": 1.0}}}, "rotary parameters"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ("llama", {"hidden_act": "quick_gelu"}, "hidden_act is 'quick_gelu'"),
        ("llama", {"quantization_config": {"quant_method": "quanto"}}, "quantised by 'quanto'"),
        ("llama", {"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
        ("llama", {"num_key_value_heads": 5}, "32 over 5"),
        ("llama", {"vocab_size": "many"}, "vocab_size is 'many'"),
        ("llama", {"tie_word_embeddings": None}, "tie_word_embeddings is None"),
        ("qwen2", {"layer_types": ["chunked_attention"] * 32}, "chunked_attention"),
        ("mistral", {"layer_types": ["full_attention"] * 32}, "layer_types"),
        ("opt", {"hidden_size": 100, "num_attention_heads": 7}, "7 heads"),
        ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "mscale": 0.7}}, "mscale"),
        ("llama", {"rope_scaling": {"rope_type": "longrope", "short_factor": "few"}}, "short_factor"),
        ("llama", {"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0]}}, "short_factor has 1 numbers"),
        ("smollm3", {"no_rope_layers": [1, 2]}, "no_rope_layers"),
        ("gemma3_text", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("gemma3_text", {"rope_parameters": {"rope_type": "default"}}, "rotary parameters"),
        ("gemma3_text", {"rope_parameters": {"full_attention": 3}}, "rotary parameters"),
        ("gemma2", {"attn_logit_softcapping": 0}, "attn_logit_softcapping is 0"),
        ("phi", {"partial_rotary_factor": 0.4}, "25 of 64 elements"),
        ("phi", {"partial_rotary_factor": 2}, "partial_rotary_factor is 2"),
        ("phi3", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_type is 'linear'"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ("gpt2", {"scale_attn_weights": False}, "scores are not scaled"),
        ("gptj", {"rotary_dim": 300}, "rotary_dim is 300"),
        ("falcon", {"alibi": 3}, "alibi is 3"),
        ("bloom", {"apply_residual_connection_post_layernorm": True}, "sets apply_residual_connection_post"),
        ("bloom", {"n_head": 7}, "7 heads"),
        ("mpt", {"no_bias": False}, "products have biases"),
        ("mpt", {"logit_scale": 0.5}, "logit_scale"),
        ("mpt", {"expansion_ratio": 2}, "expansion_ratio is 2"),
        ("mpt", {"norm_type": "rmsnorm"}, "norm_type is 'rmsnorm'"),
        ("mpt", {"attn_config": 3}, "attn_config is 3"),
        ("mpt", {"attn_config": {"alibi": False}}, "no slopes"),
        ("mpt", {"attn_config": {"attn_type": "multiquery_attention"}}, "attn_type is 'multiquery_attention'"),
        ("mpt", {"attn_config": {"qk_ln": 1}}, "qk_ln is 1"),
        ("mpt", {"attn_config": {"prefix_lm": True}}, "prefix_lm"),
        ("mpt", {"attn_config": {"alibi_bias_max": 0}}, "alibi_bias_max is 0"),
        ("mixtral", {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ("mixtral", {"num_experts_per_tok": 9}, "a token of it has 9 of 8 experts"),
        ("qwen3_moe", {"num_experts": 4096}, "8 of 4096 experts"),
        ("qwen3_moe", {"mlp_only_layers": 3}, "mlp_only_layers are 3"),
        ("olmoe", {"num_experts": 0}, "num_experts is 0"),
        ("gpt_oss", {"swiglu_limit": 0}, "swiglu_limit is 0"),
        ("gpt_oss", {"quantization_config": {"quant_method": "quanto"}}, "quantised by 'quanto'"),
        ("falcon", {"num_ln_in_parallel_attn": 2}, "a kind that no Falcon has"),
        ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 8}, "71 over 8"),
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

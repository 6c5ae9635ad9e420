import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BartConfig,
    BertConfig,
    BloomConfig,
    DeepseekV3Config,
    GPT2Config,
    LlamaConfig,
    MambaConfig,
    MoshiConfig,
    OPTConfig,
    Qwen2Config,
    T5Config,
    XLNetConfig,
)  # fmt: skip

from pagedchat.errors import ModelError
from pagedchat.models import transformers_config
from pagedchat.models.config import describe_model
from pagedchat.models.description import as_token_ids
from pagedchat.models.raw_config import read_json


def save(folder: Path, config: Any, **changes: Any) -> Path:
    config.save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


def complaint(folder: Path) -> ModelError:
    with pytest.raises(ModelError) as caught:
        describe_model("some/model", folder)
    assert "some/model" in caught.value.message
    assert caught.value.hint
    return caught.value


def test_opt(tmp_path: Path) -> None:
    config = OPTConfig(word_embed_proj_dim=768, dtype="float16")
    model = describe_model("m", save(tmp_path, config, architectures=["OPTForCausalLM"]))
    assert (model.architecture, model.model_type) == ("OPTForCausalLM", "opt")
    assert (model.num_layers, model.num_heads, model.num_kv_heads, model.head_dim) == (12, 12, 12, 64)
    assert (model.vocab_size, model.max_model_len, model.dtype) == (50272, 2048, torch.float16)
    assert model.eos_token_ids == {2}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (BloomConfig(apply_residual_connection_post_layernorm=True), "has attention with slopes (ALiBi)"),
        (MambaConfig(), "has state-space layers"),
        (BartConfig(is_decoder=True, is_encoder_decoder=False), "has attention to an encoder"),
        (XLNetConfig(), "has attention of its own"),
    ],
    ids=lambda value: getattr(value, "model_type", ""),
)
def test_what_keeps_a_family_from_running_is_named(tmp_path: Path, config: Any, words: str) -> None:
    assert f"{words} and does not go through the attention interface" in complaint(save(tmp_path, config)).message


def test_heads_that_differ_from_layer_to_layer_are_refused() -> None:
    """Of such a config transformers says nothing that holds for all layers, but raises an error of its own."""

    class Varying:
        num_attention_heads = 4

        @property
        def head_dim(self) -> int:
            raise RuntimeError("'head_dim' is a per-layer attribute")

    with pytest.raises(ModelError, match="m has other heads in some layers than in others"):
        transformers_config._check_attention("m", Varying())


def test_a_window_that_attention_is_not_told_of_ends_the_context(tmp_path: Path) -> None:
    config = MoshiConfig(sliding_window=50, max_position_embeddings=300)
    assert describe_model("m", save(tmp_path, config)).max_model_len == 50


def test_other_names_for_the_same_things(tmp_path: Path) -> None:
    model = describe_model("m", save(tmp_path, GPT2Config(n_layer=3, n_head=6, n_embd=48, n_positions=77)))
    assert (model.num_layers, model.num_kv_heads, model.head_dim, model.max_model_len) == (3, 6, 8, 77)


def test_grouped_heads_and_a_head_dim_of_their_own(tmp_path: Path) -> None:
    config = Qwen2Config(hidden_size=64, num_attention_heads=8, num_key_value_heads=2, head_dim=24)
    model = describe_model("m", save(tmp_path, config))
    assert (model.num_heads, model.num_kv_heads, model.head_dim) == (8, 2, 24)


def test_body_of_a_model_is_run_with_its_head(tmp_path: Path) -> None:
    model = describe_model("m", save(tmp_path, OPTConfig(), architectures=["OPTModel"]))
    assert model.architecture == "OPTForCausalLM"


@pytest.mark.parametrize("rope_type", ["dynamic", "longrope"])
def test_context_ends_where_positions_begin_to_depend_on_the_batch(tmp_path: Path, rope_type: str) -> None:
    rope = {
        "rope_type": rope_type, "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 512,
        "short_factor": [1.0] * 64, "long_factor": [2.0] * 64,
    }  # fmt: skip
    model = describe_model("m", save(tmp_path, LlamaConfig(max_position_embeddings=2048), rope_parameters=rope))
    assert model.max_model_len == 512


@pytest.mark.parametrize(
    ("config", "changes", "words"),
    [
        (T5Config(), {}, "encoder-decoder"),
        (BertConfig(), {"architectures": ["BertForMaskedLM"]}, "does not generate text"),
        (LlamaConfig(), {"architectures": ["LlamaForSequenceClassification"]}, "does not generate text"),
        (BloomConfig(apply_residual_connection_post_layernorm=True), {}, "attention interface"),
        (DeepseekV3Config(), {}, "latent attention"),
        (Qwen2Config(), {"layer_types": ["chunked_attention"] * 32}, "chunked_attention"),
        (LlamaConfig(), {"quantization_config": {"quant_method": "bitsandbytes"}}, "quantised"),
        (GPT2Config(), {"add_cross_attention": True}, "second input"),
    ],
    ids=["t5", "bert", "classifier", "alibi", "latent", "chunked", "quantised", "cross"],
)
def test_models_that_cannot_be_run(tmp_path: Path, config: Any, changes: dict[str, Any], words: str) -> None:
    assert words in complaint(save(tmp_path, config, **changes)).message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no config.json"),
        ('{"model_type": "op', "cannot be read"),
        ("[1, 2]", "it is no JSON object"),
        ("{}", "names no model_type"),
        ('{"model_type": "not-invented-yet"}', "'not-invented-yet'"),
        (b"\xff\xfe\x00", "cannot be read"),
    ],
)
def test_config_that_is_none(tmp_path: Path, content: str | bytes | None, words: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert words in complaint(tmp_path).message


def test_token_ids_come_in_three_forms() -> None:
    assert [as_token_ids("eos", value) for value in (None, 2, [3, 4])] == [set(), {2}, {3, 4}]


WHOLE = "It must be a whole number from 1 to"
ODD: list[tuple[dict[str, Any], str]] = [
    ({"num_hidden_layers": 10**9}, f"num_hidden_layers is 1000000000. {WHOLE} 4096."),
    ({"num_hidden_layers": 1e9}, f"num_hidden_layers is 1000000000.0. {WHOLE} 4096."),
    ({"num_hidden_layers": float("inf")}, f"num_hidden_layers is inf. {WHOLE} 4096."),
    ({"vocab_size": 2**40}, f"vocab_size is {2**40}. {WHOLE} 4194304."),
    ({"hidden_size": 10**30}, f"hidden_size is {10**30}. {WHOLE} 1048576."),
    ({"intermediate_size": 2**31}, f"intermediate_size is {2**31}. {WHOLE} 4194304."),
    ({"num_attention_heads": 10**6}, f"num_attention_heads is 1000000. {WHOLE} 65536."),
    ({"num_key_value_heads": 10**6}, f"num_key_value_heads is 1000000. {WHOLE} 65536."),
    ({"head_dim": 10**6}, f"head_dim is 1000000. {WHOLE} 16384."),
    ({"max_position_embeddings": 2**31}, f"max_position_embeddings is {2**31}. {WHOLE} 2147483647."),
    ({"sliding_window": 2**63}, f"sliding_window is {2**63}. {WHOLE} 2147483647."),
    ({"text_config": {"num_hidden_layers": 10**9}}, f"num_hidden_layers is 1000000000. {WHOLE} 4096."),
    ({"rope_scaling": {"rope_type": "llama3", "original_max_position_embeddings": 2**40}}, f"{2**40}. {WHOLE}"),
    ({"eos_token_id": [[2]]}, "eos_token_id is [[2]]. It must be a token id or a list of them."),
    ({"eos_token_id": "</s>"}, "eos_token_id is '</s>'. It must be a token id or a list of them."),
    ({"eos_token_id": 2.5}, "eos_token_id is 2.5. It must be a token id or a list of them."),
    ({"architectures": -1e9}, "architectures is -1000000000.0. It must be a list of names."),
    ({"architectures": [None]}, "architectures is [None]. It must be a list of names."),
    ({"architectures": {}}, "architectures is {}. It must be a list of names."),
]
SENSELESS: list[dict[str, Any]] = [
    {"num_attention_heads": 0}, {"num_attention_heads": -1}, {"num_hidden_layers": 0}, {"hidden_size": 0},
    {"vocab_size": -5}, {"vocab_size": None}, {"vocab_size": "many"}, {"hidden_size": [64]},
    {"layer_types": [["full_attention"]]}, {"rope_scaling": [1]}, {"rope_scaling": {"rope_type": {}}},
    {"hidden_act": {}}, {"max_position_embeddings": -1}, {"tie_word_embeddings": "yes"},
]  # fmt: skip
ONLY_FOR_TRANSFORMERS: list[dict[str, Any]] = [
    {"head_dim": 1.5}, {"num_key_value_heads": 3}, {"rms_norm_eps": float("nan")}, {"rope_theta": 10**400},
    {"rope_theta": "x"}, {"rope_parameters": {"full_attention": {"rope_type": 3}}}, {"max_position_embeddings": 0},
]  # fmt: skip


@pytest.mark.parametrize("model_type", ["llama", "qwen3", "gpt_neox"])
@pytest.mark.parametrize(("changes", "words"), ODD, ids=lambda value: f"{value!r:.40}")
def test_value_that_no_model_has_is_named(
    tmp_path: Path, model_type: str, changes: dict[str, Any], words: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type, **changes}))
    assert words in complaint(tmp_path).message


@pytest.mark.parametrize("changes", SENSELESS, ids=lambda value: f"{value!r:.40}")
def test_values_that_make_no_sense(tmp_path: Path, changes: dict[str, Any]) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2", **changes}))
    assert complaint(tmp_path).message


@pytest.mark.parametrize("changes", ONLY_FOR_TRANSFORMERS, ids=lambda value: f"{value!r:.40}")
def test_values_that_our_modules_do_not_take(tmp_path: Path, changes: dict[str, Any]) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2", **changes}))
    assert describe_model("some/model", tmp_path).native is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"model_type": "llama", "x": "\\ud800"}', "no valid Unicode"),
        ('{"model_type": "\\udfff"}', "no valid Unicode"),
        ("[" * 200_000, "too deep"),
        ('{"a":' * 200_000, "too deep"),
        ('{"vocab_size": ' + "9" * 5000 + "}", "cannot be read"),
    ],
    ids=["a half character", "a name of one", "lists", "objects", "digits"],
)
def test_json_that_cannot_be_taken(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "config.json").write_text(content)
    assert words in complaint(tmp_path).message


def test_character_in_two_halves_is_whole(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"smile": "\\ud83d\\ude00"}')
    assert read_json(tmp_path / "config.json") == {"smile": "😀"}

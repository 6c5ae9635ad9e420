import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BertConfig,
    BloomConfig,
    DeepseekV3Config,
    GPT2Config,
    LlamaConfig,
    OPTConfig,
    Qwen2Config,
    T5Config,
)  # fmt: skip

from pagedchat.errors import ModelError
from pagedchat.models.config import describe_model
from pagedchat.models.description import as_token_ids


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
        (BloomConfig(), {}, "attention interface"),
        (DeepseekV3Config(), {}, "latent attention"),
        (Qwen2Config(), {"layer_types": ["chunked_attention"] * 32}, "chunked_attention"),
        (LlamaConfig(), {"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantised"),
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
        ("[1, 2]", "names no model_type"),
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
    assert [as_token_ids(value) for value in (None, 2, [3, 4])] == [set(), {2}, {3, 4}]

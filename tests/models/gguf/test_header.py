"""GGUF files that are not what they should be: one sentence each, and what to do."""

from pathlib import Path
from typing import Any

import pytest
import torch

from pagedchat import LLM
from pagedchat.errors import ModelError
from pagedchat.models.config import describe_model
from pagedchat.models.gguf.header import read_header
from pagedchat.models.gguf.kinds import KINDS
from pagedchat.models.gguf.tokenizer import load_gguf_tokenizer
from pagedchat.models.loader import load_weights
from tools.fuzz.gguf_files import TENSORS, VALUES, gguf_bytes

HUGE = 2**63


def written(folder: Path, data: bytes) -> Path:
    path = folder / "tiny.gguf"
    path.write_bytes(data)
    return path


def file_of(folder: Path, *, tensors: list[list[Any]] = TENSORS, **values: Any) -> Path:
    changed = {**VALUES, **{name.replace("__", "."): value for name, value in values.items()}}
    return written(folder, gguf_bytes({k: v for k, v in changed.items() if v is not None}, tensors))


def with_tensor(name: str, **changes: Any) -> list[list[Any]]:
    places = {"shape": 1, "kind": 2}
    tensors = [list(tensor) for tensor in TENSORS]
    tensor = next(tensor for tensor in tensors if tensor[0] == name)
    for what, value in changes.items():
        tensor[places[what]] = value
    return tensors


def load(path: Path) -> None:
    description = describe_model("m", path)
    load_weights(description, attention="", dtype=torch.float32, device=torch.device("cpu"))


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    path = file_of(tmp_path)
    load(path)
    header = read_header(path)
    assert header.values == VALUES | {"llama.attention.layer_norm_rms_epsilon": pytest.approx(1e-5)}
    assert [[tensor.name, list(tensor.shape), tensor.kind] for tensor in header.tensors] == TENSORS
    llm = LLM(str(path), device="cpu", num_blocks=8)
    assert llm.info.quantization == "Q8_0"
    assert llm.tokenizer is not None
    assert llm.tokenizer.encode("ab a").tokens == ["<s>", "▁", "ab", "▁a"]  # the better score first


@pytest.mark.parametrize(
    ("data", "words", "hint"),
    [
        (b"", "cut short", "Download"),
        (b"GGUF" + bytes(30), "byte order of other machines", "little-endian"),
        (b"GGML" + bytes(30), "does not begin with GGUF", "folder of a checkpoint"),
        (gguf_bytes(VALUES, TENSORS, order=">"), "byte order of other machines", "little-endian"),
        (gguf_bytes(VALUES, TENSORS, version=1), "of version 1", "version 2 or 3"),
        (gguf_bytes(VALUES, TENSORS, version=9), "of version 9", "version 2 or 3"),
        (gguf_bytes(VALUES, TENSORS, counts=(HUGE, 3)), "speaks of 9,223,372,036,854,775,808 tensors", "Download"),
        (gguf_bytes(VALUES, TENSORS, counts=(1, HUGE)), "speaks of 9,223,372,036,854,775,808 values", "Download"),
        (gguf_bytes(VALUES, TENSORS)[:-2000], "cut short: blk.0.ffn_down.weight", "Download"),
        (gguf_bytes(VALUES, TENSORS)[:300], "cut short", "Download"),
        (gguf_bytes({**VALUES, "general.alignment": 33}, TENSORS), "its alignment is 33", "Download"),
        (gguf_bytes({**VALUES, "general.alignment": 2**31}, TENSORS), "its alignment is 2147483648", "Download"),
        (gguf_bytes(VALUES, [*TENSORS, TENSORS[0]]), "the same name", "Download"),
        (gguf_bytes(VALUES, [["x", [1] * 9, 0]]), "x has 9 dimensions", "Download"),
        (gguf_bytes(VALUES, [["x", [HUGE, HUGE], 0]]), "x ends behind its end", "Download"),
        (gguf_bytes(VALUES, [["x", [4, 33], 8]]), "which blocks of 32 do not divide", "Download"),
        (gguf_bytes(VALUES, [["x", [4, 256], 10]]), "x is stored as Q2_K, which is not", "a file in one of F32"),
        (gguf_bytes(VALUES, [["x", [4, 256], 99]]), "x is stored as kind 99, which is not known", "Q4_K"),
    ],
)  # fmt: skip
def test_headers(data: bytes, words: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        describe_model("m", written(tmp_path, data))
    assert words in caught.value.message
    assert hint in caught.value.hint


def test_every_kind_that_is_read_is_named_where_one_is_not(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        describe_model("m", file_of(tmp_path, tensors=with_tensor("token_embd.weight", kind=11)))
    assert all(kind.name in caught.value.hint for kind in KINDS.values())


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"general__architecture": "mamba"}, "of the architecture 'mamba', which is not run"),
        ({"general__architecture": None}, "of the architecture None"),
        ({"llama__expert_count": 8}, "it has no expert_used_count"),
        ({"split__count": 3}, "is a part of a model (its split.count is 3), but is not named as one"),
        ({"llama__block_count": 5}, "lack blk.1.attn_k.weight and 35 more"),
        ({"llama__block_count": 2**31}, "num_hidden_layers is 2147483648"),
        ({"llama__block_count": None}, "lack blk.1."),
        ({"llama__embedding_length": 64}, "have other shapes than its config says"),
        ({"llama__attention__head_count": [2]}, "its num_attention_heads is [2]"),
        ({"llama__attention__head_count": 3, "llama__attention__head_count_kv": 2}, "its heads are 3 over 2"),
        ({"llama__context_length": 0}, "its max_position_embeddings is 0"),
        ({"llama__rope__freq_base": "x"}, "its rope_theta is 'x'"),
        ({"llama__rope__scaling__type": "odd", "llama__rope__scaling__factor": 2.0}, "its rope_type is 'odd'"),
        ({"tokenizer__ggml__eos_token_id": "x"}, "eos_token_id is 'x'"),
    ],
)
def test_values(values: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        load(file_of(tmp_path, **values))
    assert words in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"tokenizer__ggml__tokens": None}, "has no tokenizer in it"),
        ({"tokenizer__ggml__model": "t5"}, "of the kind 't5'"),
        ({"tokenizer__ggml__tokens": ["a"] * 40}, "some tokens twice"),
        ({"tokenizer__ggml__scores": [1.0]}, "has no scores"),
        ({"tokenizer__ggml__model": "gpt2"}, "cuts text as None, which is not known"),
        ({"tokenizer__ggml__model": "gpt2", "tokenizer__ggml__pre": "new"}, "cuts text as 'new'"),
        ({"tokenizer__ggml__model": "gpt2", "tokenizer__ggml__pre": "qwen2"}, "has no merges"),
        (
            {
                "tokenizer__ggml__model": "gpt2",
                "tokenizer__ggml__pre": "qwen2",
                "tokenizer__ggml__merges": ["no such"],
            },
            "makes no sense",
        ),
    ],
)
def test_tokenizers(values: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        load_gguf_tokenizer("m", file_of(tmp_path, **values))
    assert words in caught.value.message
    assert "--tokenizer" in caught.value.hint


def test_scales_that_are_none(tmp_path: Path) -> None:
    data = bytearray(gguf_bytes(VALUES, TENSORS))
    path = written(tmp_path, bytes(data))
    start = next(tensor.start for tensor in read_header(path).tensors if tensor.name == "blk.0.attn_k.weight")
    data[start : start + 2] = b"\x00\x7c"
    with pytest.raises(ModelError, match=r"damaged: in blk.0.attn_k.weight, it has scales that are not finite"):
        load(written(tmp_path, bytes(data)))


def test_what_ends_a_turn_ends_a_reply(tmp_path: Path) -> None:
    tokens, types = list(VALUES["tokenizer.ggml.tokens"]), list(VALUES["tokenizer.ggml.token_type"])
    tokens[-1], types[-1], tokens[-2] = "<|im_end|>", 3, "<|end|>"  # the other one is text like any
    path = file_of(tmp_path, tokenizer__ggml__tokens=tokens, tokenizer__ggml__token_type=types)
    assert describe_model("m", path).eos_token_ids == {2, len(tokens) - 1}
    assert load_gguf_tokenizer("m", path).chat_template == "{{ bos_token }}"


def test_transformers_is_not_asked(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="which transformers is not asked to run"):
        describe_model("m", file_of(tmp_path), "transformers")


def test_another_file_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"x")
    with pytest.raises(ModelError, match="is a file, not a folder"):
        LLM(str(path))

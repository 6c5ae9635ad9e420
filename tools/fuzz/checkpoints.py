"""The files of a checkpoint: whatever is in them, the model is described, or refused by a `ModelError` in words."""

import json
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st

from pagedchat.chat.token_texts import token_bytes
from pagedchat.errors import DeviceError, InvalidValueError, ModelError
from pagedchat.models.checkpoint_files import weight_files
from pagedchat.models.config import describe_model
from pagedchat.models.generation_config import eos_token_ids, read_generation_config, sampling_values
from pagedchat.models.loader import load_weights
from pagedchat.models.quantized.mxfp4 import PackedExpert
from pagedchat.models.quantized.packing import Packing
from pagedchat.models.quantized.unpacking import PARTS, unpacked
from pagedchat.models.tokenizer import load_tokenizer
from tools.fuzz.bent_trees import any_of, bent
from tools.fuzz.target import Target

_OPT: dict[str, Any] = {
    "architectures": ["OPTForCausalLM"], "model_type": "opt", "vocab_size": 40, "hidden_size": 8, "ffn_dim": 16,
    "num_attention_heads": 2, "num_hidden_layers": 2, "max_position_embeddings": 32, "word_embed_proj_dim": 8,
    "activation_function": "relu", "do_layer_norm_before": True, "enable_bias": True, "eos_token_id": 2,
    "layer_norm_elementwise_affine": True, "tie_word_embeddings": True, "dtype": "float16",
}  # fmt: skip
_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 40, "hidden_size": 8,
    "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 2,
    "max_position_embeddings": 32, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 16},
    "eos_token_id": [2, 3], "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False,
}  # fmt: skip
_QWEN: dict[str, Any] = {
    **_LLAMA, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 4, "sliding_window": 8,
    "use_sliding_window": True, "max_window_layers": 1, "layer_types": ["full_attention", "sliding_attention"],
    "rope_scaling": None,
}  # fmt: skip
_GEMMA: dict[str, Any] = {
    **_LLAMA, "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "head_dim": 4,
    "sliding_window": 8,
    "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 4, "sliding_window_pattern": 2,
    "rope_local_base_freq": 1000.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    "attn_logit_softcapping": 20.0, "final_logit_softcapping": None, "layer_types": None,
}  # fmt: skip
_PHI: dict[str, Any] = {
    **_LLAMA, "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "original_max_position_embeddings": 16,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [2.0]}, "partial_rotary_factor": 0.5,
}  # fmt: skip
_OLMO: dict[str, Any] = {
    **_LLAMA, "architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", "rope_scaling": None,
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "full_attention"],
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "yarn", "factor": 8.0, "attention_factor": 1.2, "beta_fast": 32,
                           "beta_slow": 1, "truncate": True, "original_max_position_embeddings": 16},
    },
}  # fmt: skip
_FALCON: dict[str, Any] = {
    "architectures": ["FalconForCausalLM"], "model_type": "falcon", "vocab_size": 40, "hidden_size": 8,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_kv_heads": 1, "new_decoder_architecture": True,
    "num_ln_in_parallel_attn": 2, "layer_norm_epsilon": 1e-5, "ffn_hidden_size": 16, "bias": False, "alibi": False,
}  # fmt: skip
_GPTJ: dict[str, Any] = {
    "architectures": ["GPTJForCausalLM"], "model_type": "gptj", "vocab_size": 40, "n_embd": 8, "n_layer": 2,
    "n_head": 2, "n_positions": 32, "rotary_dim": 2, "n_inner": None, "activation_function": "gelu_new",
}  # fmt: skip
_FALCON_RW: dict[str, Any] = {
    **_FALCON, "num_kv_heads": None, "new_decoder_architecture": False, "num_ln_in_parallel_attn": None,
    "multi_query": False, "parallel_attn": False, "bias": True, "alibi": True,
}  # fmt: skip
_BLOOM: dict[str, Any] = {
    "architectures": ["BloomForCausalLM"], "model_type": "bloom", "vocab_size": 40, "n_embed": 8, "hidden_size": 8,
    "n_layer": 2, "n_head": 2, "num_attention_heads": None, "seq_length": 32, "layer_norm_epsilon": 1e-5,
    "apply_residual_connection_post_layernorm": False, "eos_token_id": 2, "dtype": "float16",
}  # fmt: skip
_MPT: dict[str, Any] = {
    "architectures": ["MptForCausalLM"], "model_type": "mpt", "vocab_size": 40, "d_model": 8, "n_layers": 2,
    "n_heads": 2, "max_seq_len": 32, "expansion_ratio": 4, "no_bias": True, "logit_scale": None,
    "norm_type": "low_precision_layernorm", "layer_norm_epsilon": 1e-5, "learned_pos_emb": True,
    "attn_config": {"attn_type": "multihead_attention", "alibi": True, "alibi_bias_max": 8, "clip_qkv": 6.0,
                    "softmax_scale": None, "qk_ln": False, "prefix_lm": False},
}  # fmt: skip
_MIXTRAL: dict[str, Any] = {
    **_LLAMA, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "rope_scaling": None,
    "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None,
}  # fmt: skip
_QWEN_MOE: dict[str, Any] = {
    **_LLAMA, "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "rope_scaling": None,
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 16,
    "norm_topk_prob": False, "decoder_sparse_step": 1, "mlp_only_layers": [1], "use_sliding_window": False,
    "sliding_window": 8, "max_window_layers": 1,
}  # fmt: skip
_GPT_OSS: dict[str, Any] = {
    **_LLAMA, "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_local_experts": 4,
    "num_experts_per_tok": 2, "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"],
    "swiglu_limit": 7.0, "swiglu_alpha": 1.702, "quantization_config": {"quant_method": "mxfp4"},
    "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "truncate": False,
                     "original_max_position_embeddings": 16},
}  # fmt: skip
_GPTQ: dict[str, Any] = {
    **_LLAMA, "rope_scaling": None,
    "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 8, "desc_act": False, "sym": True,
                            "checkpoint_format": "gptq", "version": "gemm", "w_bit": 4},
}  # fmt: skip
_COMPRESSED: dict[str, Any] = {
    **_LLAMA, "rope_scaling": None,
    "quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
                            "config_groups": {"group_0": {"targets": ["Linear"],
                                                          "weights": {"num_bits": 4, "type": "int"}}}},
}  # fmt: skip
_GENERATION: dict[str, Any] = {
    "do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 50, "min_p": 0.1, "repetition_penalty": 1.1,
    "eos_token_id": [2, 3], "max_new_tokens": 20,
}  # fmt: skip
_TOKENIZER: dict[str, Any] = {
    "version": "1.0", "truncation": None, "padding": None,
    "added_tokens": [{"id": 0, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False,
                      "normalized": False, "special": True}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Replace",
    "pattern": {"Regex": "a+"},
                                                                        "content": "b"}]},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": True},
        {"type": "Split", "pattern": {"Regex": "\\s+"}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]},
    "post_processor": {"type": "TemplateProcessing",
                       "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A",
                       "type_id": 0}}],
                       "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                       "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}},
    "decoder": {"type": "Sequence", "decoders": [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}]},
    "model": {"type": "BPE", "dropout": None, "unk_token": "<s>", "continuing_subword_prefix": None,
              "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
              "vocab": {"<s>": 0, "a": 1, "b": 2, "ab": 3, "c": 4, "Ġ": 5}, "merges": [["a", "b"]]},
}  # fmt: skip
_SETTINGS: dict[str, Any] = {
    "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": {"content": "</s>"},
    "unk_token": None, "add_bos_token": True, "model_max_length": 2048, "chat_template": [
        {"name": "default", "template": "{{ bos_token }}"}],
}  # fmt: skip
_TEXT = "Hello, a 12  world\n海\U0001f642 <s>"
_NUMBERS = st.integers(-5, 300)
_CPU = torch.device("cpu")


# --- JSON -------------------------------------------------------------------------------------------


@st.composite
def _json(draw: st.DrawFn, *trees: dict[str, Any]) -> str:
    """A file's text: a bent tree, mostly written as JSON should be."""
    tree = draw(bent(draw(st.sampled_from(trees)), _NUMBERS))
    text = json.dumps(tree, ensure_ascii=draw(st.booleans()))
    how = draw(st.integers(0, 11))
    if how == 0:
        at = draw(st.integers(0, len(text)))
        return (
            text[:at]
            + draw(any_of(["", "\x00", "\\ud800", "[" * 50_000, "{", "9" * 5000, "\ufeff", ","]))
            + text[at:]
        )
    if how == 1:  # a key twice
        return (
            "{" + json.dumps(draw(st.sampled_from(sorted(trees[0])))) + ": 1, " + text[1:]
            if text[:1] == "{"
            else text
        )
    return text


@contextmanager
def _folder(**files: str | bytes) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        for file, content in files.items():
            path = Path(name) / file.replace("__", ".")
            path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
        yield Path(name)


@contextmanager
def _in_words() -> Iterator[None]:
    """What is refused is refused in one short line, that a terminal can be given as it is, and a hint."""
    try:
        yield
    except (ModelError, DeviceError) as error:
        assert error.message
        assert error.hint


def _config(text: str) -> None:
    with _folder(config__json=text) as folder, _in_words():
        found = describe_model("m", folder, "native")
        assert found.num_layers > 0
        assert found.head_dim > 0
        assert all(type(token) is int for token in found.eos_token_ids)


def _config_of_any(text: str) -> None:
    with _folder(config__json=text) as folder, _in_words():
        found = describe_model("m", folder)
        assert all(type(token) is int for token in found.eos_token_ids)


def _generation_config(text: str) -> None:
    with _folder(generation_config__json=text) as folder, _in_words():
        try:
            values = read_generation_config(folder)
        except ValueError:  # it is there and cannot be read: whoever loads the model says so
            return
        assert set(sampling_values(values)) <= {*_GENERATION, "max_tokens"}
        with suppress(InvalidValueError):
            assert all(type(token) is int for token in eos_token_ids(values))


def _tokenizer(example: tuple[str, str, str]) -> None:
    """Read it, and use it as the engine does."""
    text, settings, model_type = example
    with _folder(tokenizer__json=text, tokenizer_config__json=settings) as folder, _in_words():
        loaded = load_tokenizer("m", folder, model_type)
        tokenizer = loaded.tokenizer
        try:
            ids = tokenizer.encode(_TEXT).ids
            tokenizer.decode(ids)
            texts = [token_bytes(tokenizer)(token) for token in ids[:20]]
        except Exception as error:  # the library's own, for what a file means that could be read
            raise ModelError(str(error), "?") from error
        assert all(isinstance(text, bytes) for text in texts)


# --- weights ----------------------------------------------------------------------------------------


@cache
def _weights() -> tuple[dict[str, Any], bytes]:
    """Header and data of a tiny model."""
    from pagedchat.models.native import build, read_native  # noqa: PLC0415

    places = build(read_native(_OPT).config).places()
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, place in places.items():
        size = place.numel() * 2
        header[name] = {"dtype": "F16", "shape": list(place.shape), "data_offsets": [at, at + size]}
        at += size
    return header, bytes(at)


@st.composite
def _safetensors(draw: st.DrawFn) -> bytes:
    """A file whose header lies, or is none."""
    header, data = _weights()
    text = json.dumps(draw(bent(header, _NUMBERS))).encode()
    length = draw(
        st.sampled_from([len(text)] * 6 + [0, 1, len(text) - 1, len(text) + 8, 2**27, 2**40, 2**63, 2**64 - 1])
    )
    whole = struct.pack("<Q", length) + text + data
    return whole[: draw(st.integers(0, len(whole)))] if draw(st.integers(0, 5)) == 0 else whole


def _load(data: bytes) -> None:
    with _folder(config__json=json.dumps(_OPT), model__safetensors=data) as folder, _in_words():
        description = describe_model("m", folder, "native")
        load_weights(description, attention="", dtype=torch.float32, device=torch.device("cpu"))


@st.composite
def _packed_parts(draw: st.DrawFn) -> tuple[str, dict[str, tuple[str, list[int]]]]:
    """A method, and parts of a product in types and shapes that mostly do not go together."""
    dtypes = st.sampled_from(["int32", "int32", "float16", "float16", "int8", "uint8", "float8_e4m3fn", "float32"])
    shapes = st.lists(st.sampled_from([0, 1, 2, 4, 8, 16, 32]), max_size=3)
    names = sorted({part for parts in PARTS.values() for part in parts})
    parts = draw(st.dictionaries(st.sampled_from(names), st.tuples(dtypes, shapes), min_size=1, max_size=4))
    return draw(st.sampled_from(sorted(PARTS))), parts


def _put_together(example: tuple[str, dict[str, tuple[str, list[int]]]]) -> None:
    method, parts = example
    packing = Packing("?", method, 4)  # type: ignore[arg-type]  # one of its keys
    tensors = ((f"a.{part}", torch.ones(shape).to(getattr(torch, dtype))) for part, (dtype, shape) in parts.items())
    with _in_words():
        list(unpacked("m", packing, tensors, floats_as="int8"))


@st.composite
def _mxfp4_experts(draw: st.DrawFn) -> PackedExpert:
    """Any bytes, of scales mostly such as there are; some columns."""
    num_rows, num_blocks = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    scales = draw(st.lists(st.integers(100, 150) | st.integers(0, 255), min_size=9, max_size=9))
    blocks = draw(st.binary(min_size=144, max_size=144) | st.just(bytes(144)))
    start, stop = sorted(draw(st.tuples(*[st.sampled_from([0, 16, 32, 33, 64, 96])] * 2)))
    return PackedExpert(
        torch.tensor([*blocks], dtype=torch.uint8).view(3, 3, 16)[:num_rows, :num_blocks],
        torch.tensor(scales, dtype=torch.uint8).view(3, 3)[:num_rows, :num_blocks],
        slice(start, stop),
    )


def _means_the_same(expert: PackedExpert) -> None:
    few = expert.in_8_bits(_CPU)
    if few is not None:
        assert torch.equal(few.dequantized(torch.float32).T, expert.floats(_CPU))


@st.composite
def _index(draw: st.DrawFn) -> str:
    tree = {"metadata": {"total_size": 1}, "weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    return draw(_json(tree))


def _indexed(text: str) -> None:
    files: dict[str, str | bytes] = {"model__safetensors__index__json": text, "model-1__safetensors": b""}
    with _folder(**files) as folder, _in_words():
        assert all(path.parent == folder for path in weight_files("m", folder))


_TOKENIZERS = st.tuples(
    _json(_TOKENIZER) | st.just(json.dumps(_TOKENIZER)),
    _json(_SETTINGS) | st.just(json.dumps(_SETTINGS)),
    st.sampled_from(["opt", "llama"]),
)
_CONFIGS = _json(
    _OPT,
    _LLAMA,
    _QWEN,
    _GEMMA,
    _PHI,
    _OLMO,
    _FALCON,
    _FALCON_RW,
    _GPTJ,
    _BLOOM,
    _MPT,
    _MIXTRAL,
    _QWEN_MOE,
    _GPT_OSS,
    _GPTQ,
    _COMPRESSED,
)
TARGETS = (
    Target("configs", _CONFIGS, _config),
    Target("generation configs", _json(_GENERATION), _generation_config),
    Target("tokenizers", _TOKENIZERS, _tokenizer),
    Target("weights", _safetensors(), _load),
    Target("packed weights", _packed_parts(), _put_together),
    Target("MXFP4 experts", _mxfp4_experts(), _means_the_same),
    Target("weight indexes", _index(), _indexed),
)
SLOW_TARGETS = (Target("any configs", _json(_OPT, _LLAMA, _QWEN), _config_of_any, seconds=60.0),)
"""Those that our own modules do not run go through transformers, which takes seconds to import."""

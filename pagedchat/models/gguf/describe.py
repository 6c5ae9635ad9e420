"""The values of a GGUF file -> the description of a model, by way of the families' own readers. Reads no tensor but
the factors of rotary frequencies.

A file names what config.json would say in other words, and its tensors too: both are tables in `architectures`.
Queries and keys of Llama's kind have their rows in another order, which the layout undoes, and norms of Gemma's
kind already have the one that is added to their weights.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pagedchat.bounds import shown
from pagedchat.errors import InvalidValueError, ModelError
from pagedchat.layers.norms import NormConfig
from pagedchat.layers.rotary_frequencies import PairScaling
from pagedchat.models.decoder_config import DecoderConfig
from pagedchat.models.description import ModelDescription, as_token_ids, describe_native
from pagedchat.models.gguf.architectures import ARCHITECTURES, EXTRA, LAYOUTS, MODEL_TYPES, NAMES
from pagedchat.models.gguf.header import GgufHeader
from pagedchat.models.gguf.mixtures import Value, with_experts
from pagedchat.models.gguf.parts import read_parts
from pagedchat.models.gguf.tensors import read_tensor
from pagedchat.models.native import read_native
from pagedchat.models.raw_config import NotNativeError, check_sizes

_ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")
_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>")
"""Tokens that end a turn of a chat; many files name only the one that ends a text."""
_CONTROL = 3
"""Type of tokens that stand for no text."""
_FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_FACTORS = ("rope_freqs.weight", "rope_factors_short.weight")


def describe_gguf(name: str, path: Path) -> ModelDescription:
    """Read it.

    Args:
        name: of the model, for messages.
        path: of the file, or of the first of its parts.

    Raises:
        ModelError: no GGUF file, a damaged one, or a model that is not run from one.
    """
    header = read_parts(name, path)
    architecture = header.values.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
        raise ModelError(
            f"{name} is a model of the architecture {shown(architecture)}, which is not run from GGUF files.",
            f"Choose one of {', '.join(ARCHITECTURES)}, or the model's folder in safetensors.",
        )
    try:
        return _describe(name, path, header, architecture)
    except NotNativeError as error:
        raise ModelError(f"{name} cannot be run, since {error}.", "Choose another file of this model.") from None
    except InvalidValueError as error:
        raise ModelError(f"In {name} {error.message} {error.hint}", "Download the file again.") from error
    except ModelError:
        raise
    except Exception as error:  # of many kinds, for the many ways in which values can go together wrongly
        raise ModelError(
            f"The values of {name} make no sense: {type(error).__name__}: {error!s:.200}.",
            "Download the file again.",
        ) from error


def _describe(name: str, path: Path, header: GgufHeader, architecture: str) -> ModelDescription:
    kind = with_experts(architecture, header.values.get(f"{architecture}.expert_count"))
    values = _as_config(header, architecture, kind)
    check_sizes(values)
    described = read_native(values)
    _check_experts(header, described.config)
    kinds = [kind for kind in header.kinds() if kind not in _FLOATS]
    return describe_native(
        name,
        path,
        replace(described, config=_as_stored(described.config, header, kind)),
        model_type=values["model_type"],
        eos_token_ids=frozenset().union(_turn_ends(header), *(_token_id(header, end) for end in _ENDS)),
        dtype=torch.bfloat16 if kinds else _FLOATS[header.kinds()[0]],
        stored_as=kinds[0] if kinds else "",
    )


def _token_id(header: GgufHeader, name: str) -> frozenset[int]:
    return as_token_ids(name, header.values.get(f"tokenizer.ggml.{name}"))


def _turn_ends(header: GgufHeader) -> frozenset[int]:
    tokens, types = (header.values.get(f"tokenizer.ggml.{name}") for name in ("tokens", "token_type"))
    if not isinstance(tokens, list) or not isinstance(types, list):
        return frozenset()
    kinds = enumerate(zip(tokens, types, strict=False))
    return frozenset(number for number, (token, kind) in kinds if kind == _CONTROL and token in _TURN_ENDS)


def _check_experts(header: GgufHeader, config: DecoderConfig) -> None:
    """Before so many are built."""
    mixture = config.mixture
    if mixture is None:
        return
    if len(header.tensors) < config.num_layers:
        raise NotNativeError(f"it has {len(header.tensors)} tensors for {config.num_layers} layers")
    router = next((tensor.shape for tensor in header.tensors if tensor.name == "blk.0.ffn_gate_inp.weight"), None)
    if router is not None and router[0] != mixture.num_experts:
        raise NotNativeError(f"its expert_count is {mixture.num_experts}, and its first router knows {router[0]}")


def _as_config(header: GgufHeader, architecture: str, kind: str) -> dict[str, Any]:
    """What config.json would say."""

    def value(name: str) -> Any:
        return header.values.get(f"{architecture}.{name}")

    shapes = {tensor.name: tensor.shape for tensor in header.tensors}
    if "token_embd.weight" not in shapes:
        raise NotNativeError("it has no token_embd.weight")
    given = {ours: value(theirs) for ours, theirs in NAMES.items() if value(theirs) is not None}
    found = {
        "model_type": MODEL_TYPES.get(kind, kind),
        "vocab_size": shapes["token_embd.weight"][0],
        "tie_word_embeddings": "output.weight" not in shapes,
        **given,
        **_rotary(value, given),
    }
    extra = EXTRA.get(kind)
    return found if extra is None else found | extra(value, found)


def _rotary(value: Value, given: dict[str, Any]) -> dict[str, Any]:
    kind, factor = value("rope.scaling.type"), value("rope.scaling.factor")
    trained = value("rope.scaling.original_context_length")
    if kind in (None, "none", "longrope") or not factor:
        return {}
    scaling = {"rope_type": kind, "factor": factor, "rope_theta": given.get("rope_theta", 10000.0)}
    return {"rope_scaling": scaling | ({"original_max_position_embeddings": trained} if trained else {})}


def _as_stored(config: DecoderConfig, header: GgufHeader, kind: str) -> DecoderConfig:
    """With the file's names, biases, norms and frequencies."""
    tensors = {tensor.name: tensor for tensor in header.tensors}
    config = replace(
        config,
        layout=LAYOUTS[kind],
        qkv_bias=any(f"blk.0.{name}.bias" in tensors for name in ("attn_q", "attn_qkv")),
        out_bias="blk.0.attn_output.bias" in tensors,
        mlp_bias="blk.0.ffn_up.bias" in tensors,
        head_bias="output.bias" in tensors,
    )
    if kind.startswith("gemma"):
        qk_norm = config.qk_norm
        config = replace(
            config,
            norm=_whole(config.norm),
            qk_norm=None if qk_norm is None else replace(qk_norm, norm=_whole(qk_norm.norm)),
        )
    factors = next((tensors[name] for name in _FACTORS if name in tensors), None)
    if factors is None:
        return config
    stored = read_tensor(factors)
    if not isinstance(stored, torch.Tensor) or factors.shape != (_num_pairs(config),):
        raise NotNativeError(f"its {factors.name} is of shape {list(factors.shape)}")
    slowed = tuple(stored.float().tolist())
    if not all(0 < factor < 1e30 for factor in slowed):
        raise NotNativeError(f"its {factors.name} has factors that are none")
    return _slowed(config, slowed, header.values, str(header.values["general.architecture"]))


def _slowed(
    config: DecoderConfig, factors: tuple[float, ...], values: dict[str, Any], architecture: str
) -> DecoderConfig:
    trained = values.get(f"{architecture}.rope.scaling.original_context_length")
    scale = values.get(f"{architecture}.rope.scaling.attn_factor")
    longer = architecture == "phi3" and type(trained) is int and 0 < trained < config.max_len
    max_len = trained if longer and isinstance(trained, int) else config.max_len
    rotaries = tuple(
        rotary
        and replace(
            rotary,
            scaling=PairScaling(factors, max_len),
            scale=float(scale) if isinstance(scale, float) and 0 < scale < 1e30 else rotary.scale,
        )
        for rotary in config.rotaries
    )
    return replace(config, rotaries=rotaries, max_len=max_len)


def _num_pairs(config: DecoderConfig) -> int:
    rotary = config.rotary
    return 0 if rotary is None else rotary.turned(config.heads.head_dim) // 2


def _whole(norm: NormConfig) -> NormConfig:
    return replace(norm, offset=0.0)

"""What config.json says about a model, and whether the paged engine can run it. Reads no weights."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING_NAMES

from pagedchat.errors import ModelError
from pagedchat.models.quiet import quiet

DEFAULT_MODEL_LEN = 2048
"""Context of a model whose config does not say one."""
RUNS = "Choose a decoder-only model, such as OPT, GPT-2, Llama, Mistral, Qwen2, Gemma, Phi or GPT-NeoX."

_GENERATES = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "Model")
"""How the class names end that hold a language model (the last one its body, whose head is tied)."""
_LAYER_TYPES = {"full_attention", "sliding_attention"}
_BATCH_DEPENDENT_ROPE = {"dynamic", "longrope"}
"""Rotary embeddings that change past the original context with the longest text of the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """What the rest of the runtime needs to know of a model."""

    name: str
    """As the user gave it."""
    folder: Path
    config: Any
    """The transformers config."""
    architecture: str
    """Class name, such as `OPTForCausalLM`."""
    model_type: str
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_model_len: int
    eos_token_ids: frozenset[int]
    dtype: torch.dtype | None
    """Of the checkpoint, where it says so."""


def caps_scores(description: ModelDescription) -> bool:
    """Whether the model's attention bounds its scores (`attn_logit_softcapping`, as Gemma 2 does)."""
    text: Any = description.config.get_text_config()
    return getattr(text, "attn_logit_softcapping", None) is not None


def describe_model(name: str, folder: Path) -> ModelDescription:
    """Read `config.json` in `folder`.

    Args:
        name: of the model, for messages.
        folder: a local checkpoint.

    Raises:
        ModelError: no config, a broken one, or a model that the paged engine cannot run.
    """
    config = _read_config(name, folder)
    architecture = _check_architecture(name, config)
    text: Any = config.get_text_config()
    _check_attention(name, text)
    num_heads = int(text.num_attention_heads)
    return ModelDescription(
        name=name,
        folder=folder,
        config=config,
        architecture=architecture,
        model_type=config.model_type,
        num_layers=int(text.num_hidden_layers),
        num_heads=num_heads,
        num_kv_heads=int(getattr(text, "num_key_value_heads", None) or num_heads),
        head_dim=int(getattr(text, "head_dim", None) or text.hidden_size // num_heads),
        vocab_size=int(text.vocab_size),
        max_model_len=_max_model_len(text),
        eos_token_ids=as_token_ids(getattr(text, "eos_token_id", None)),
        dtype=_dtype(config) or _dtype(text),
    )


def as_token_ids(value: Any) -> frozenset[int]:
    """A token id, a list of them or None, as configs have it -> a set."""
    if value is None:
        return frozenset()
    return frozenset(value if isinstance(value, list) else [value])


def _read_config(name: str, folder: Path) -> Any:
    path = folder / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError(
            f"{name} has no config.json.", "Give the folder of a checkpoint as transformers saves it, or a hub id."
        ) from error
    except (OSError, ValueError) as error:
        raise ModelError(
            f"The config.json of {name} cannot be read: {error}.", "Download the model again, or mend the file."
        ) from error
    model_type = raw.get("model_type") if isinstance(raw, dict) else None
    if not isinstance(model_type, str):
        raise ModelError(
            f"The config.json of {name} names no model_type.", "It is not a checkpoint of transformers."
        )
    try:
        with quiet():
            return AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # whatever a strange config makes transformers raise is the config's fault
        raise ModelError(
            f"transformers does not know how to read a model of type {model_type!r} ({name}).", RUNS
        ) from error


def _check_architecture(name: str, config: Any) -> str:
    """The class that runs the model, by name."""
    named = (getattr(config, "architectures", None) or [""])[0]
    shown = named or config.model_type
    is_encoder = config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False)
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(f"{name} is an encoder-decoder model ({shown}), not a decoder-only one.", RUNS)
    if is_encoder or type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING or (named and not named.endswith(_GENERATES)):
        raise ModelError(f"{name} does not generate text ({shown}); it is no decoder-only language model.", RUNS)
    model_class = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    if not model_class._supports_attention_backend:
        raise ModelError(f"{shown} does not go through the attention interface of transformers ({name}).", RUNS)
    return str(model_class.__name__)


def _check_attention(name: str, text: Any) -> None:
    """Refuse attention that the paged cache has no room for."""
    if getattr(text, "kv_lora_rank", None):
        raise ModelError(f"{name} uses multi-head latent attention, which the paged cache does not hold.", RUNS)
    other = set(getattr(text, "layer_types", None) or []) - _LAYER_TYPES
    if other:
        raise ModelError(f"{name} has layers of {', '.join(sorted(other))}, which the engine does not run.", RUNS)
    if isinstance(getattr(text, "num_key_value_heads", None), list):
        raise ModelError(f"{name} has a different number of KV heads in each layer.", RUNS)
    if getattr(text, "quantization_config", None):
        raise ModelError(
            f"{name} is a quantised checkpoint, which is not read.",
            "Choose the model in float32, float16 or bfloat16.",
        )
    if getattr(text, "add_cross_attention", False):
        raise ModelError(f"{name} attends to a second input.", RUNS)


def _max_model_len(text: Any) -> int:
    """Positions that the model can tell apart and that do not depend on the rest of the batch."""
    names = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")
    length = next((int(value) for name in names if (value := getattr(text, name, None))), DEFAULT_MODEL_LEN)
    rope = getattr(text, "rope_parameters", None) or {}
    for part in (rope, *(value for value in rope.values() if isinstance(value, dict))):
        if part.get("rope_type") in _BATCH_DEPENDENT_ROPE:
            length = min(length, int(part.get("original_max_position_embeddings") or length))
    return length


def _dtype(config: Any) -> torch.dtype | None:
    dtype = getattr(config, "dtype", None)
    if isinstance(dtype, str):
        dtype = getattr(torch, dtype, None)
    return dtype if isinstance(dtype, torch.dtype) else None

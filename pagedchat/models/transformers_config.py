"""What transformers makes of a config.json, and whether the paged engine can run it. Reads no weights.

Imports transformers, which takes seconds: only for models that our own modules do not run.
"""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING_NAMES

from pagedchat.errors import ModelError
from pagedchat.models.description import ModelDescription, as_token_ids
from pagedchat.models.quiet import quiet
from pagedchat.ops.common.choices import ScoreParts

DEFAULT_MODEL_LEN = 2048
"""Context of a model whose config does not say one."""
RUNS = "Choose a decoder-only model, such as OPT, GPT-2, Llama, Mistral, Qwen2, Gemma, Phi or GPT-NeoX."

_GENERATES = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "Model")
"""How the class names end that hold a language model (the last one its body, whose head is tied)."""
_OWN_PARTS = (
    (("ssm_state_size", "mamba_d_state", "state_size", "mamba_d_conv"), "state-space layers"),
    (
        ("linear_num_key_heads", "linear_attn_config", "lru_width", "attention_hidden_size", "qk_dim_factor"),
        "recurrent layers",
    ),
    (("kv_lora_rank",), "multi-head latent attention"),
    (("alibi",), "attention with slopes (ALiBi)"),
    (("encoder_layers", "encoder_ffn_dim", "cross_attention_hidden_size"), "attention to an encoder"),
)
"""What a model may have that keeps it from the attention interface: names in its config that are set then. The
first that is found is told."""
_ALIBI = {"bloom", "mpt"}
"""Models of slopes alone, whose configs need not say so."""
_SINKS = {"gpt_oss"}
"""Models that hand sinks to the attention interface, of which their configs say nothing."""
_LAYER_TYPES = {"full_attention", "sliding_attention"}
_WINDOW_IN_CACHE = {"moshi"}
"""Models that leave their sliding window to the cache of transformers and do not tell their attention of it."""
_BATCH_DEPENDENT_ROPE = {"dynamic", "longrope"}
"""Rotary embeddings that change past the original context with the longest text of the batch."""


def describe(name: str, folder: Path, model_type: str) -> ModelDescription:
    """Read the config with transformers.

    Args:
        name: of the model, for messages.
        folder: a local checkpoint.
        model_type: as its config.json names it.

    Raises:
        ModelError: a model that the paged engine cannot run.
    """
    config = _read_config(name, folder, model_type)
    architecture = _check_architecture(name, config)
    text: Any = config.get_text_config()
    _check_attention(name, text)
    num_heads = int(text.num_attention_heads)
    return ModelDescription(
        name=name,
        folder=folder,
        config=config,
        native=None,
        architecture=architecture,
        model_type=config.model_type,
        num_layers=int(text.num_hidden_layers),
        num_heads=num_heads,
        num_kv_heads=int(getattr(text, "num_key_value_heads", None) or num_heads),
        head_dim=int(getattr(text, "head_dim", None) or text.hidden_size // num_heads),
        vocab_size=int(text.vocab_size),
        max_model_len=_max_model_len(text),
        eos_token_ids=as_token_ids("eos_token_id", getattr(text, "eos_token_id", None)),
        dtype=_dtype(config) or _dtype(text),
        scores=ScoreParts(
            soft_cap=getattr(text, "attn_logit_softcapping", None) is not None, sinks=text.model_type in _SINKS
        ),
    )


def _read_config(name: str, folder: Path, model_type: str) -> Any:
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
        raise ModelError(
            f"{shown} has {_own_part(config)} and does not go through the attention interface of transformers "
            f"({name}).",
            RUNS,
        )
    return str(model_class.__name__)


def _own_part(config: Any) -> str:
    """What is unknown of a model whose modules do not call our attention."""
    text = config.get_text_config()
    if text.model_type in _ALIBI:
        return "attention with slopes (ALiBi)"
    found = (words for names, words in _OWN_PARTS if any(getattr(text, name, None) for name in names))
    return next(found, "attention of its own")


def _check_attention(name: str, text: Any) -> None:
    """Refuse attention that the paged cache has no room for."""
    if not _has_like_layers(text):
        raise ModelError(
            f"{name} has other heads in some layers than in others, which the cache does not hold.", RUNS
        )
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


def _has_like_layers(text: Any) -> bool:
    """Whether the sizes of attention are the same in all layers: where they are not, transformers raises when the
    config is asked for them, an error of its own that not every version has."""
    try:
        for name in ("num_attention_heads", "num_key_value_heads", "head_dim", "kv_lora_rank"):
            getattr(text, name, None)
    except Exception:
        return False
    return True


def _max_model_len(text: Any) -> int:
    """Positions that the model can tell apart and that do not depend on the rest of the batch."""
    names = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")
    length = next((int(value) for name in names if (value := getattr(text, name, None))), DEFAULT_MODEL_LEN)
    if text.model_type in _WINDOW_IN_CACHE:
        length = min(length, int(getattr(text, "sliding_window", None) or length))
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

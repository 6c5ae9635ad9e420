"""Phi-1, Phi-1.5 and Phi-2 (arXiv 2309.05463): both halves of a layer start from the same rows, half of each head
turns, and everything has a bias. Phi-3 and Phi-4 (arXiv 2404.14219): Llamas with packed products.
"""

from typing import Any

from pagedchat.models.checkpoint_layout import CheckpointLayout
from pagedchat.models.decoder_config import DecoderConfig, QkNorm
from pagedchat.models.families.common import (
    BASE_DEFAULTS,
    every,
    layer_norm,
    no_windows,
    read_sizes,
    read_windows,
    rms_norm,
)
from pagedchat.models.families.rotary import read_kind, read_rotary
from pagedchat.models.raw_config import NotNativeError, RawConfig

PHI_DEFAULTS: dict[str, Any] = BASE_DEFAULTS | {
    "vocab_size": 51200,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 24,
    "hidden_act": "gelu_new",
    "layer_norm_eps": 1e-5,
    "qk_layernorm": False,
}
"""What a config means that leaves them out."""
PHI3_DEFAULTS: dict[str, Any] = BASE_DEFAULTS | {
    "vocab_size": 32064,
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "max_position_embeddings": 4096,
    "original_max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "eos_token_id": 32000,
}
_PHI = CheckpointLayout(
    out="self_attn.dense",
    q_norm="self_attn.q_layernorm",
    k_norm="self_attn.k_layernorm",
    up=("mlp.fc1",),
    down="mlp.fc2",
    norm="model.final_layernorm",
)
_PHI3 = CheckpointLayout(qkv=("self_attn.qkv_proj",), up=("mlp.gate_up_proj",))
_LONGROPE = ("longrope", "su", "yarn")
"""Names that Phi-3's files have for one kind of scaling."""


def read_phi(raw: RawConfig) -> DecoderConfig:
    """Read a Phi's.

    Raises:
        NotNativeError: an unusual value; so for the others.
    """
    norm = layer_norm(raw, "layer_norm_eps")
    return DecoderConfig(
        **read_sizes(raw),
        norm=norm,
        parallel="one norm",
        rotaries=every(raw, read_rotary(raw, share=0.5)),
        windows=no_windows(raw),
        qk_norm=QkNorm(norm) if raw.flag("qk_layernorm") else None,
        qkv_bias=True,
        out_bias=True,
        gated=False,
        mlp_bias=True,
        head_bias=True,
        layout=_PHI,
    )


def read_phi3(raw: RawConfig) -> DecoderConfig:
    """Read a Phi-3's or a Phi-4's."""
    raw.refuse("layer_types")
    given = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    kind = given.get("rope_type", given.get("type", "default")) if isinstance(given, dict) else None
    if kind not in ("default", *_LONGROPE):
        raise NotNativeError(f"its rope_type is {kind!r}")
    renamed = given if kind == "default" else given | {"rope_type": "longrope"}
    return DecoderConfig(
        **read_sizes(raw),
        norm=rms_norm(raw),
        rotaries=every(raw, read_kind(raw, renamed, raw.get("rope_theta"), share=1.0)),
        windows=read_windows(raw, raw.optional_integer("sliding_window"), lambda _: True),
        layout=_PHI3,
    )

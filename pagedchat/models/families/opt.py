"""OPT (Zhang et al. 2022, arXiv 2205.01068): positions are learned, two rows on; norms come before attention and
feed-forward, in opt-350m alone after them.
"""

from typing import Any

from pagedchat.layers.activation import ACTIVATIONS
from pagedchat.layers.norms import NormConfig
from pagedchat.models.checkpoint_layout import CheckpointLayout
from pagedchat.models.decoder_config import DecoderConfig
from pagedchat.models.families.common import divided_heads, every, no_windows
from pagedchat.models.raw_config import RawConfig

DEFAULTS: dict[str, Any] = {
    "vocab_size": 50272,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "ffn_dim": 3072,
    "max_position_embeddings": 2048,
    "do_layer_norm_before": True,
    "_remove_final_layer_norm": False,
    "word_embed_proj_dim": None,
    "num_attention_heads": 12,
    "activation_function": "relu",
    "eos_token_id": 2,
    "enable_bias": True,
    "layer_norm_elementwise_affine": True,
    "tie_word_embeddings": True,
}
"""What a config means that leaves them out."""
POSITION_OFFSET = 2
"""Rows of the position table that belong to no position."""
EPS = 1e-5
_NAMES: dict[str, Any] = {
    "prefixes": ("", "model.", "model.decoder."),
    "embedding": "model.decoder.embed_tokens",
    "positions": "model.decoder.embed_positions",
    "project_in": "model.decoder.project_in",
    "layer": "model.decoder.layers",
    "out": "self_attn.out_proj",
    "up": ("fc1",),
    "down": "fc2",
    "norm": "model.decoder.final_layer_norm",
    "project_out": "model.decoder.project_out",
}
_BEFORE = CheckpointLayout(attention_norm="self_attn_layer_norm", mlp_norm="final_layer_norm", **_NAMES)
_AFTER = CheckpointLayout(attention_end_norm="self_attn_layer_norm", mlp_end_norm="final_layer_norm", **_NAMES)


def read_opt(raw: RawConfig) -> DecoderConfig:
    """Read it.

    Raises:
        NotNativeError: an unusual value.
    """
    hidden_size, norm_first = raw.integer("hidden_size"), raw.flag("do_layer_norm_before")
    embedding_size = raw.optional_integer("word_embed_proj_dim")
    affine, bias = raw.flag("layer_norm_elementwise_affine"), raw.flag("enable_bias")
    return DecoderConfig(
        vocab_size=raw.integer("vocab_size"),
        hidden_size=hidden_size,
        embedding_size=None if embedding_size == hidden_size else embedding_size,
        ffn_size=raw.integer("ffn_dim"),
        num_layers=raw.integer("num_hidden_layers"),
        heads=divided_heads(hidden_size, raw.integer("num_attention_heads")),
        max_len=raw.integer("max_position_embeddings"),
        position_offset=POSITION_OFFSET,
        norm=NormConfig(kind="layer", eps=EPS, weight=affine, bias=affine),
        norm_places="before" if norm_first else "after sum",
        rotaries=every(raw, None),
        windows=no_windows(raw),
        qkv_bias=bias,
        out_bias=bias,
        activation=raw.one_of("activation_function", ACTIVATIONS),
        gated=False,
        mlp_bias=bias,
        final_norm=norm_first and not raw.flag("_remove_final_layer_norm"),
        tied=raw.flag("tie_word_embeddings"),
        layout=_BEFORE if norm_first else _AFTER,
    )

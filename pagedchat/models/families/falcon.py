"""Falcon (Almazrouei et al. 2023, arXiv 2311.16867): both halves of a layer start from the same rows, and all query
heads share a KV head, or a group of them does. Falcon-RW (Penedo et al. 2023, arXiv 2306.01116) has neither, and
instead of angles slopes, which are scaled as products of queries and keys are.
"""

from dataclasses import replace
from typing import Any

from pagedchat.layers.activation import ACTIVATIONS
from pagedchat.layers.alibi import Alibi
from pagedchat.models.checkpoint_layout import CheckpointLayout
from pagedchat.models.decoder_config import DecoderConfig
from pagedchat.models.families.common import divided_heads, every, layer_norm, no_windows
from pagedchat.models.families.rotary import read_rotary
from pagedchat.models.raw_config import NotNativeError, RawConfig

DEFAULTS: dict[str, Any] = {
    "vocab_size": 65024,
    "hidden_size": 4544,
    "num_hidden_layers": 32,
    "num_attention_heads": 71,
    "layer_norm_epsilon": 1e-5,
    "new_decoder_architecture": False,
    "multi_query": True,
    "parallel_attn": True,
    "bias": False,
    "alibi": False,
    "max_position_embeddings": 2048,
    "rope_theta": 10000.0,
    "activation": "gelu",
    "eos_token_id": 11,
    "tie_word_embeddings": True,
}
"""What a config means that leaves them out."""
_ONE_NORM = CheckpointLayout(
    prefixes=("", "transformer."),
    embedding="transformer.word_embeddings",
    layer="transformer.h",
    qkv=("self_attention.query_key_value",),
    by_group=True,
    out="self_attention.dense",
    up=("mlp.dense_h_to_4h",),
    down="mlp.dense_4h_to_h",
    norm="transformer.ln_f",
)
_TWO_NORMS = replace(_ONE_NORM, attention_norm="ln_attn", mlp_norm="ln_mlp")


def read_falcon(raw: RawConfig) -> DecoderConfig:
    """Read it.

    Raises:
        NotNativeError: an unusual value.
    """
    raw.refuse("n_embed", "head_dim")
    width, grouped = raw.integer("hidden_size"), raw.flag("new_decoder_architecture")
    norms = raw.optional_integer("num_ln_in_parallel_attn") or (2 if grouped else 1)
    if norms > 2 or (norms == 2 and not grouped) or (grouped and not raw.flag("parallel_attn")):
        raise NotNativeError("its layers are of a kind that no Falcon has")
    num_heads, bias = raw.integer("num_attention_heads"), raw.flag("bias")
    num_kv_heads = raw.optional_integer("num_kv_heads") if grouped else 1 if raw.flag("multi_query") else None
    heads, has_slopes = divided_heads(width, num_heads, num_kv_heads), raw.flag("alibi")
    return DecoderConfig(
        vocab_size=raw.integer("vocab_size"),
        hidden_size=width,
        ffn_size=raw.optional_integer("ffn_hidden_size") or 4 * width,
        num_layers=raw.integer("num_hidden_layers"),
        heads=heads,
        max_len=raw.integer("max_position_embeddings"),
        norm=layer_norm(raw, "layer_norm_epsilon"),
        parallel=("two norms" if norms == 2 else "one norm") if raw.flag("parallel_attn") else "",
        rotaries=every(raw, None if has_slopes else read_rotary(raw)),
        windows=no_windows(raw),
        alibi=Alibi(scale=heads.head_dim**-0.5, rounded=True) if has_slopes else None,
        qkv_bias=bias,
        out_bias=bias,
        activation=raw.one_of("activation", ACTIVATIONS),
        gated=False,
        mlp_bias=bias,
        tied=raw.flag("tie_word_embeddings"),
        layout=_TWO_NORMS if norms == 2 else _ONE_NORM,
    )

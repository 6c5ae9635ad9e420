"""Bloom (BigScience 2022, arXiv 2211.05100): no positions, scores fall with the distance of a key, and the token
embeddings are normed.
"""

from typing import Any

from pagedchat.layers.alibi import Alibi
from pagedchat.models.checkpoint_layout import CheckpointLayout
from pagedchat.models.decoder_config import DecoderConfig
from pagedchat.models.families.common import divided_heads, layer_norm
from pagedchat.models.raw_config import RawConfig

DEFAULTS: dict[str, Any] = {
    "vocab_size": 250880,
    "hidden_size": 64,
    "n_layer": 2,
    "n_head": 8,
    "layer_norm_epsilon": 1e-5,
    "seq_length": 2048,
    "eos_token_id": 2,
    "tie_word_embeddings": True,
}
"""What a config means that leaves them out. Slopes go on for ever; a checkpoint says for which lengths it was
trained."""
_LAYOUT = CheckpointLayout(
    prefixes=("", "transformer."),
    embedding="transformer.word_embeddings",
    embedding_norm="transformer.word_embeddings_layernorm",
    layer="transformer.h",
    qkv=("self_attention.query_key_value",),
    by_group=True,
    out="self_attention.dense",
    up=("mlp.dense_h_to_4h",),
    down="mlp.dense_4h_to_h",
    norm="transformer.ln_f",
)


def read_bloom(raw: RawConfig) -> DecoderConfig:
    """Read it; older files have other names for its sizes.

    Raises:
        NotNativeError: an unusual value.
    """
    raw.refuse("apply_residual_connection_post_layernorm")
    width = raw.optional_integer("n_embed") or raw.integer("hidden_size")
    num_layers = raw.optional_integer("num_hidden_layers") or raw.integer("n_layer")
    num_heads = raw.optional_integer("num_attention_heads") or raw.integer("n_head")
    return DecoderConfig(
        vocab_size=raw.integer("vocab_size"),
        hidden_size=width,
        ffn_size=4 * width,
        num_layers=num_layers,
        heads=divided_heads(width, num_heads),
        max_len=raw.integer("seq_length"),
        embedding_norm=True,
        norm=layer_norm(raw, "layer_norm_epsilon"),
        rotaries=(None,) * num_layers,
        windows=(None,) * num_layers,
        qkv_bias=True,
        out_bias=True,
        alibi=Alibi(),
        activation="gelu_pytorch_tanh",
        gated=False,
        mlp_bias=True,
        tied=raw.flag("tie_word_embeddings"),
        layout=_LAYOUT,
    )

"""GPT-NeoX and Pythia (Black et al. 2022, arXiv 2204.06745): both halves of a layer start from the same rows, each
behind a norm of its own, and a part of each head turns.
"""

from typing import Any

from pagedchat.models.checkpoint_layout import CheckpointLayout
from pagedchat.models.decoder_config import DecoderConfig
from pagedchat.models.families.common import BASE_DEFAULTS, divided_heads, every, layer_norm, no_windows, read_sizes
from pagedchat.models.families.rotary import SHARE, read_rotary
from pagedchat.models.raw_config import RawConfig

DEFAULTS: dict[str, Any] = BASE_DEFAULTS | {
    "vocab_size": 50432,
    "hidden_size": 6144,
    "intermediate_size": 24576,
    "num_hidden_layers": 44,
    "num_attention_heads": 64,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-5,
    "use_parallel_residual": True,
    "attention_bias": True,
    "rotary_pct": 0.25,
    "rotary_emb_base": 10000.0,
}
"""What a config means that leaves them out."""
_LAYOUT = CheckpointLayout(
    prefixes=("", "gpt_neox."),
    embedding="gpt_neox.embed_in",
    layer="gpt_neox.layers",
    qkv=("attention.query_key_value",),
    by_group=True,
    out="attention.dense",
    up=("mlp.dense_h_to_4h",),
    down="mlp.dense_4h_to_h",
    norm="gpt_neox.final_layer_norm",
    head="embed_out",
)


def read_gpt_neox(raw: RawConfig) -> DecoderConfig:
    """Read it.

    Raises:
        NotNativeError: an unusual value.
    """
    raw.refuse(SHARE, "num_key_value_heads", "head_dim")
    bias = raw.flag("attention_bias")
    heads = divided_heads(raw.integer("hidden_size"), raw.integer("num_attention_heads"))
    return DecoderConfig(
        **read_sizes(raw) | {"heads": heads},
        norm=layer_norm(raw, "layer_norm_eps"),
        parallel="two norms" if raw.flag("use_parallel_residual") else "",
        rotaries=every(raw, read_rotary(raw, share=raw.number("rotary_pct"), theta="rotary_emb_base")),
        windows=no_windows(raw),
        qkv_bias=bias,
        out_bias=bias,
        gated=False,
        mlp_bias=True,
        layout=_LAYOUT,
    )

"""MPT (MosaicML 2023): no positions and no biases, scores fall with the distance of a key. A config may say how far
(`alibi_bias_max`), and that queries and keys are normed (`qk_ln`): MosaicML's own modules go by that, those of
transformers do not.
"""

from collections.abc import Mapping
from typing import Any

from pagedchat.layers.alibi import Alibi
from pagedchat.models.checkpoint_layout import CheckpointLayout
from pagedchat.models.decoder_config import DecoderConfig, QkNorm
from pagedchat.models.families.common import divided_heads, layer_norm
from pagedchat.models.raw_config import NotNativeError, RawConfig

DEFAULTS: dict[str, Any] = {
    "vocab_size": 50368,
    "d_model": 2048,
    "n_layers": 24,
    "n_heads": 16,
    "expansion_ratio": 4,
    "max_seq_len": 2048,
    "layer_norm_epsilon": 1e-5,
    "no_bias": True,
    "norm_type": "low_precision_layernorm",
    "tie_word_embeddings": True,
}
"""What a config means that leaves them out."""
_ATTENTION_DEFAULTS: dict[str, Any] = {
    "attn_type": "multihead_attention",
    "qk_ln": False,
    "alibi": True,
    "alibi_bias_max": 8,
}
_LAYOUT = CheckpointLayout(
    prefixes=("", "transformer."),
    embedding="transformer.wte",
    layer="transformer.blocks",
    attention_norm="norm_1",
    qkv=("attn.Wqkv",),
    q_norm="attn.q_ln",
    k_norm="attn.k_ln",
    out="attn.out_proj",
    mlp_norm="norm_2",
    up=("ffn.up_proj",),
    down="ffn.down_proj",
    norm="transformer.norm_f",
)


def read_mpt(raw: RawConfig) -> DecoderConfig:
    """Read it.

    Raises:
        NotNativeError: an unusual value.
    """
    raw.refuse("logit_scale")
    if not raw.flag("no_bias"):
        raise NotNativeError("its products have biases")
    raw.one_of("norm_type", {"low_precision_layernorm": (), "layernorm": ()})
    if raw.integer("expansion_ratio") != 4:
        raise NotNativeError(f"its expansion_ratio is {raw.get('expansion_ratio')}")
    width, num_layers = raw.integer("d_model"), raw.integer("n_layers")
    return DecoderConfig(
        vocab_size=raw.integer("vocab_size"),
        hidden_size=width,
        ffn_size=4 * width,
        num_layers=num_layers,
        heads=divided_heads(width, raw.integer("n_heads")),
        max_len=raw.integer("max_seq_len"),
        norm=layer_norm(raw, "layer_norm_epsilon", bias=False),
        rotaries=(None,) * num_layers,
        windows=(None,) * num_layers,
        **_read_attention(raw),
        activation="gelu",
        gated=False,
        tied=raw.flag("tie_word_embeddings"),
        layout=_LAYOUT,
    )


def _read_attention(raw: RawConfig) -> dict[str, Any]:
    """Those parts that stand in an object of their own."""
    values = raw.get("attn_config") or {}
    if not isinstance(values, Mapping):
        raise NotNativeError(f"its attn_config is {values!r:.60}")
    attention = RawConfig(values, _ATTENTION_DEFAULTS)
    attention.one_of("attn_type", {"multihead_attention": ()})
    attention.refuse("prefix_lm", "attn_uses_sequence_id", "sliding_window_size", "rope")
    if not attention.flag("alibi"):
        raise NotNativeError("it has no slopes (ALiBi)")
    norm = layer_norm(raw, "layer_norm_epsilon", bias=False)
    return {
        "qk_norm": QkNorm(norm, over="width") if attention.flag("qk_ln") else None,
        "alibi": Alibi(max_bias=attention.number("alibi_bias_max")),
        "qkv_clip": attention.optional_number("clip_qkv"),
        "score_scale": attention.optional_number("softmax_scale"),
    }

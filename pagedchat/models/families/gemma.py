"""Gemma (arXiv 2403.08295), Gemma 2 (arXiv 2408.00118) and the text models of Gemma 3 (arXiv 2503.19786): token
embeddings scaled by the root of their width, and norms that multiply by one more than their weights.

From Gemma 2 on norms stand before and behind each half, and most layers have a window. Gemma 2 caps scores and
logits; Gemma 3 norms queries and keys instead, and its windowed layers turn faster.
"""

from typing import Any

from pagedchat.layers.norms import NormConfig
from pagedchat.models.checkpoint_layout import CheckpointLayout
from pagedchat.models.decoder_config import DecoderConfig, QkNorm
from pagedchat.models.families.common import BASE_DEFAULTS, every, no_windows, read_sizes, read_windows, rms_norm
from pagedchat.models.families.rotary import read_kinds, read_rotary
from pagedchat.models.raw_config import RawConfig

GEMMA_DEFAULTS: dict[str, Any] = BASE_DEFAULTS | {
    "vocab_size": 256000,
    "hidden_size": 3072,
    "intermediate_size": 24576,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh",
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "eos_token_id": 1,
    "tie_word_embeddings": True,
}
"""What a config means that leaves them out."""
GEMMA2_DEFAULTS = GEMMA_DEFAULTS | {
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "final_logit_softcapping": 30.0,
    "attn_logit_softcapping": 50.0,
}
GEMMA3_DEFAULTS = GEMMA2_DEFAULTS | {
    "vocab_size": 262208,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "max_position_embeddings": 131072,
    "sliding_window_pattern": 6,
    "final_logit_softcapping": None,
    "attn_logit_softcapping": None,
}
_AROUND = CheckpointLayout(
    attention_end_norm="post_attention_layernorm",
    mlp_norm="pre_feedforward_layernorm",
    mlp_end_norm="post_feedforward_layernorm",
)
_OLD_GELU = {"gelu": "gelu_pytorch_tanh"}
"""What Gemma's first files say, and what they mean."""
_BASES = {"full_attention": "rope_theta", "sliding_attention": "rope_local_base_freq"}


def read_gemma(raw: RawConfig) -> DecoderConfig:
    """Read a Gemma's.

    Raises:
        NotNativeError: an unusual value; so for the others.
    """
    raw.refuse("layer_types")
    parts = _parts(raw, "hidden_act")
    activation = _OLD_GELU.get(parts["activation"], parts["activation"])
    rotaries = every(raw, read_rotary(raw))
    return DecoderConfig(**parts | {"activation": activation, "rotaries": rotaries, "windows": no_windows(raw)})


def read_gemma2(raw: RawConfig) -> DecoderConfig:
    """Read a Gemma 2's: every other layer has a window, the first among them."""
    windows = read_windows(raw, raw.integer("sliding_window"), lambda layer: layer % 2 == 0)
    return DecoderConfig(**_capped(raw) | {"rotaries": every(raw, read_rotary(raw)), "windows": windows})


def read_gemma3(raw: RawConfig) -> DecoderConfig:
    """Read a Gemma 3's, if it is a model of text alone."""
    pattern = raw.integer("sliding_window_pattern")
    windows = read_windows(raw, raw.integer("sliding_window"), lambda layer: (layer + 1) % pattern != 0)
    kinds = read_kinds(raw, _BASES)
    rotaries = tuple(kinds["sliding_attention" if window else "full_attention"] for window in windows)
    return DecoderConfig(**_capped(raw) | {"rotaries": rotaries, "windows": windows, "qk_norm": QkNorm(_norm(raw))})


def _parts(raw: RawConfig, activation: str) -> dict[str, Any]:
    raw.refuse("use_bidirectional_attention")
    bias = raw.flag("attention_bias")
    return read_sizes(raw, activation=activation) | {
        "norm": _norm(raw),
        "embedding_scale": raw.integer("hidden_size") ** 0.5,
        "rounds_embedding_scale": True,
        "qkv_bias": bias,
        "out_bias": bias,
    }


def _capped(raw: RawConfig) -> dict[str, Any]:
    return _parts(raw, "hidden_activation") | {
        "norm_places": "around",
        "score_scale": raw.number("query_pre_attn_scalar") ** -0.5,
        "score_cap": raw.optional_number("attn_logit_softcapping"),
        "logits_cap": raw.optional_number("final_logit_softcapping"),
        "layout": _AROUND,
    }


def _norm(raw: RawConfig) -> NormConfig:
    return rms_norm(raw, offset=1.0)

"""Nemotron and Minitron (Parmar et al. 2024, arXiv 2402.16819): half of each head turns, layer norms multiply by
one more than their weights, and the feed-forward is plain, through a squared ReLU.
"""

from dataclasses import replace
from typing import Any

from pagedchat.models.checkpoint_layout import CheckpointLayout
from pagedchat.models.decoder_config import DecoderConfig
from pagedchat.models.families.common import BASE_DEFAULTS, every, layer_norm, no_windows, read_sizes
from pagedchat.models.families.rotary import read_rotary
from pagedchat.models.raw_config import RawConfig

DEFAULTS: dict[str, Any] = BASE_DEFAULTS | {
    "vocab_size": 256000,
    "hidden_size": 6144,
    "intermediate_size": 24576,
    "num_attention_heads": 48,
    "hidden_act": "relu2",
    "max_position_embeddings": 4096,
    "norm_eps": 1e-5,
    "mlp_bias": False,
    "eos_token_id": 3,
}
"""What a config means that leaves them out."""
_LAYOUT = CheckpointLayout(up=("mlp.up_proj",))


def read_nemotron(raw: RawConfig) -> DecoderConfig:
    """Read it.

    Raises:
        NotNativeError: an unusual value.
    """
    raw.refuse("layer_types")
    bias = raw.flag("attention_bias")
    return DecoderConfig(
        **read_sizes(raw),
        norm=replace(layer_norm(raw, "norm_eps"), offset=1.0),
        rotaries=every(raw, read_rotary(raw, share=0.5)),
        windows=no_windows(raw),
        qkv_bias=bias,
        out_bias=bias,
        gated=False,
        mlp_bias=raw.flag("mlp_bias"),
        layout=_LAYOUT,
    )

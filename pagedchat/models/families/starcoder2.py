"""StarCoder2 (Lozhkov et al. 2024, arXiv 2402.19173): rotary positions, layer norms, a plain feed-forward."""

from typing import Any

from pagedchat.models.checkpoint_layout import CheckpointLayout
from pagedchat.models.decoder_config import DecoderConfig
from pagedchat.models.families.common import BASE_DEFAULTS, every, layer_norm, read_sizes, read_windows
from pagedchat.models.families.rotary import read_rotary
from pagedchat.models.raw_config import RawConfig

DEFAULTS: dict[str, Any] = BASE_DEFAULTS | {
    "vocab_size": 49152,
    "hidden_size": 3072,
    "intermediate_size": 12288,
    "num_hidden_layers": 30,
    "num_attention_heads": 24,
    "num_key_value_heads": 2,
    "hidden_act": "gelu_pytorch_tanh",
    "max_position_embeddings": 4096,
    "norm_epsilon": 1e-5,
    "use_bias": True,
    "eos_token_id": 50256,
    "tie_word_embeddings": True,
}
"""What a config means that leaves them out."""
_LAYOUT = CheckpointLayout(up=("mlp.c_fc",), down="mlp.c_proj")


def read_starcoder2(raw: RawConfig) -> DecoderConfig:
    """Read it.

    Raises:
        NotNativeError: an unusual value.
    """
    raw.refuse("layer_types")
    bias = raw.flag("use_bias")
    return DecoderConfig(
        **read_sizes(raw),
        norm=layer_norm(raw, "norm_epsilon"),
        rotaries=every(raw, read_rotary(raw)),
        windows=read_windows(raw, raw.optional_integer("sliding_window"), lambda _: True),
        qkv_bias=bias,
        out_bias=bias,
        gated=False,
        mlp_bias=bias,
        layout=_LAYOUT,
    )

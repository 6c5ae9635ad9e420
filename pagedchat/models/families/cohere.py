"""Command R (Cohere) and Command R7B and A (Cohere 2): both halves of a layer start from the same rows behind one
layer norm without bias, pairs that turn lie side by side, and logits are scaled.

In Cohere 2 three layers of four have a window, and only those turn.
"""

from typing import Any

from pagedchat.models.checkpoint_layout import CheckpointLayout
from pagedchat.models.decoder_config import DecoderConfig, QkNorm
from pagedchat.models.families.common import BASE_DEFAULTS, every, layer_norm, no_windows, read_sizes, read_windows
from pagedchat.models.families.rotary import read_rotary
from pagedchat.models.raw_config import RawConfig

COHERE2_DEFAULTS: dict[str, Any] = BASE_DEFAULTS | {
    "vocab_size": 256000,
    "hidden_size": 8192,
    "intermediate_size": 22528,
    "num_hidden_layers": 40,
    "num_attention_heads": 64,
    "max_position_embeddings": 8192,
    "layer_norm_eps": 1e-5,
    "logit_scale": 0.0625,
    "sliding_window": 4096,
    "sliding_window_pattern": 4,
    "eos_token_id": 255001,
    "tie_word_embeddings": True,
}
"""What a config means that leaves them out."""
COHERE_DEFAULTS = COHERE2_DEFAULTS | {"use_qk_norm": False, "rope_theta": 500000.0}
_LAYOUT = CheckpointLayout(interleaved=True)


def read_cohere(raw: RawConfig) -> DecoderConfig:
    """Read a Command R's.

    Raises:
        NotNativeError: an unusual value; so for the other.
    """
    raw.refuse("layer_types")
    normed = QkNorm(layer_norm(raw, "layer_norm_eps", bias=False), "each head")
    return DecoderConfig(
        **_parts(raw),
        rotaries=every(raw, read_rotary(raw, exact=True)),
        windows=no_windows(raw),
        qk_norm=normed if raw.flag("use_qk_norm") else None,
    )


def read_cohere2(raw: RawConfig) -> DecoderConfig:
    """Read a Cohere 2's."""
    pattern, rotary = raw.integer("sliding_window_pattern"), read_rotary(raw, exact=True)
    windows = read_windows(raw, raw.integer("sliding_window"), lambda layer: (layer + 1) % pattern != 0)
    rotaries = tuple(None if window is None else rotary for window in windows)
    return DecoderConfig(**_parts(raw), rotaries=rotaries, windows=windows)


def _parts(raw: RawConfig) -> dict[str, Any]:
    bias = raw.flag("attention_bias")
    return read_sizes(raw) | {
        "norm": layer_norm(raw, "layer_norm_eps", bias=False),
        "parallel": "one norm",
        "qkv_bias": bias,
        "out_bias": bias,
        "logits_scale": raw.number("logit_scale"),
        "layout": _LAYOUT,
    }

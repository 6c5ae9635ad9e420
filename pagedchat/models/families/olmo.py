"""OLMo (Groeneveld et al. 2024, arXiv 2402.00838): a Llama with layer norms that have no weights. OLMo 2
(arXiv 2501.00656): norms behind each half, and over all queries and all keys of a token; OLMo 3: windows in three
layers of four.
"""

from typing import Any

from pagedchat.layers.norms import NormConfig
from pagedchat.models.checkpoint_layout import CheckpointLayout
from pagedchat.models.decoder_config import DecoderConfig, QkNorm
from pagedchat.models.families.common import BASE_DEFAULTS, every, no_windows, read_sizes, read_windows, rms_norm
from pagedchat.models.families.rotary import read_kinds, read_rotary
from pagedchat.models.raw_config import RawConfig

OLMO_DEFAULTS: dict[str, Any] = BASE_DEFAULTS | {
    "vocab_size": 50304,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "eos_token_id": 50279,
}
"""What a config means that leaves them out."""
OLMO2_DEFAULTS = OLMO_DEFAULTS | {"rms_norm_eps": 1e-5}
OLMO3_DEFAULTS = OLMO2_DEFAULTS | {"sliding_window": 4096, "rope_theta": 500000.0}
EPS = 1e-5
_BEHIND = CheckpointLayout(attention_end_norm="post_attention_layernorm", mlp_end_norm="post_feedforward_layernorm")
_BASES = dict.fromkeys(("full_attention", "sliding_attention"), "rope_theta")


def read_olmo(raw: RawConfig) -> DecoderConfig:
    """Read an OLMo's.

    Raises:
        NotNativeError: an unusual value; so for the others.
    """
    raw.refuse("layer_types")
    return DecoderConfig(
        **_parts(raw),
        norm=NormConfig(kind="layer", eps=EPS, weight=False),
        rotaries=every(raw, read_rotary(raw, exact=True)),
        windows=no_windows(raw),
        qkv_clip=raw.optional_number("clip_qkv"),
    )


def read_olmo2(raw: RawConfig) -> DecoderConfig:
    """Read an OLMo 2's."""
    raw.refuse("layer_types")
    rotaries = every(raw, read_rotary(raw, exact=True))
    return DecoderConfig(**_behind(raw), rotaries=rotaries, windows=no_windows(raw))


def read_olmo3(raw: RawConfig) -> DecoderConfig:
    """Read an OLMo 3's."""
    windows = read_windows(raw, raw.integer("sliding_window"), lambda layer: (layer + 1) % 4 != 0)
    kinds = read_kinds(raw, _BASES, exact=True)
    rotaries = tuple(kinds["sliding_attention" if window else "full_attention"] for window in windows)
    return DecoderConfig(**_behind(raw), rotaries=rotaries, windows=windows)


def _parts(raw: RawConfig) -> dict[str, Any]:
    bias = raw.flag("attention_bias")
    return read_sizes(raw) | {"qkv_bias": bias, "out_bias": bias}


def _behind(raw: RawConfig) -> dict[str, Any]:
    norm = rms_norm(raw, exact=True)
    return _parts(raw) | {
        "norm": norm, "norm_places": "behind", "qk_norm": QkNorm(norm, "width"), "layout": _BEHIND,
    }  # fmt: skip

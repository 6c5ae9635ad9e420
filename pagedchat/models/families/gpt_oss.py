"""gpt-oss (OpenAI 2025, arXiv 2508.10925): a mixture of experts with biases everywhere, bounded gates, a sink in
every head, a window in every other layer. The hub's checkpoints store experts in MXFP4, which the loader unpacks.
"""

from typing import Any

from pagedchat.layers.experts import Gate
from pagedchat.models.checkpoint_layout import CheckpointLayout
from pagedchat.models.decoder_config import DecoderConfig
from pagedchat.models.families.common import BASE_DEFAULTS, every, read_sizes, read_windows, rms_norm
from pagedchat.models.families.mixtures import read_mixture
from pagedchat.models.families.rotary import read_rotary
from pagedchat.models.raw_config import RawConfig

DEFAULTS: dict[str, Any] = BASE_DEFAULTS | {
    "vocab_size": 201088,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 150000.0,
    "rope_parameters": {
        "rope_type": "yarn",
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 4096,
    },
    "sliding_window": 128,
    "attention_bias": True,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "swiglu_limit": 7.0,
    "swiglu_alpha": 1.702,
    "eos_token_id": None,
}
"""What a config means that leaves them out."""
_LAYOUT = CheckpointLayout(router="mlp.router", merged_experts=True)


def read_gpt_oss(raw: RawConfig) -> DecoderConfig:
    """Read a gpt-oss's: the first layer has a window, the second none, if it does not say which.

    Raises:
        NotNativeError: an unusual value.
    """
    bias, window = raw.flag("attention_bias"), raw.optional_integer("sliding_window")
    return DecoderConfig(
        **read_sizes(raw),
        norm=rms_norm(raw, exact=True),
        rotaries=every(raw, read_rotary(raw)),
        windows=read_windows(raw, window, lambda layer: layer % 2 == 0),
        qkv_bias=bias,
        out_bias=bias,
        sinks=True,
        mixture=read_mixture(
            raw,
            raw.integer("intermediate_size"),
            renormalised=True,
            biases=True,
            gate=Gate(limit=raw.number("swiglu_limit"), sharpness=raw.number("swiglu_alpha")),
        ),
        sparse=(True,) * raw.integer("num_hidden_layers"),
        layout=_LAYOUT,
    )

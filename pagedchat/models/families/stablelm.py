"""StableLM (Bellagente et al. 2024, arXiv 2402.17834): a Llama with layer norms, of which a quarter of each head
turns; both halves of a layer may start from the same rows.
"""

from typing import Any

from pagedchat.models.checkpoint_layout import CheckpointLayout
from pagedchat.models.decoder_config import DecoderConfig, QkNorm
from pagedchat.models.families.common import BASE_DEFAULTS, every, layer_norm, no_windows, read_sizes
from pagedchat.models.families.rotary import read_rotary
from pagedchat.models.raw_config import RawConfig

DEFAULTS: dict[str, Any] = BASE_DEFAULTS | {
    "vocab_size": 50304,
    "hidden_size": 2560,
    "intermediate_size": 6912,
    "num_key_value_heads": 32,
    "max_position_embeddings": 4096,
    "layer_norm_eps": 1e-5,
    "use_qkv_bias": False,
    "qk_layernorm": False,
    "use_parallel_residual": False,
    "eos_token_id": 0,
}
"""What a config means that leaves them out."""
_LAYOUT = CheckpointLayout(q_norm="self_attn.q_layernorm.norms.{}", k_norm="self_attn.k_layernorm.norms.{}")


def read_stablelm(raw: RawConfig) -> DecoderConfig:
    """Read it.

    Raises:
        NotNativeError: an unusual value.
    """
    raw.refuse("head_dim")
    normed = QkNorm(layer_norm(raw, "layer_norm_eps", bias=False), "each head")
    return DecoderConfig(
        **read_sizes(raw),
        norm=layer_norm(raw, "layer_norm_eps"),
        parallel="one norm" if raw.flag("use_parallel_residual") else "",
        rotaries=every(raw, read_rotary(raw, share=0.25)),
        windows=no_windows(raw),
        qk_norm=normed if raw.flag("qk_layernorm") else None,
        qkv_bias=raw.flag("use_qkv_bias"),
        layout=_LAYOUT,
    )

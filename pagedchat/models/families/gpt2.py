"""GPT-2 (Radford et al. 2019): positions are learned, weights are stored the other way round. GPT-J (Wang and
Komatsuzaki 2021): both halves of a layer start from the same rows, and pairs that turn lie side by side.
"""

from typing import Any

from pagedchat.layers.activation import ACTIVATIONS
from pagedchat.layers.rotary_frequencies import RotaryConfig
from pagedchat.models.checkpoint_layout import CheckpointLayout
from pagedchat.models.decoder_config import DecoderConfig
from pagedchat.models.families.common import divided_heads, layer_norm
from pagedchat.models.raw_config import NotNativeError, RawConfig

GPT2_DEFAULTS: dict[str, Any] = {
    "vocab_size": 50257,
    "n_positions": 1024,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "eos_token_id": 50256,
    "tie_word_embeddings": True,
}
"""What a config means that leaves them out."""
GPTJ_DEFAULTS = GPT2_DEFAULTS | {
    "vocab_size": 50400,
    "n_positions": 2048,
    "n_embd": 4096,
    "n_layer": 28,
    "n_head": 16,
    "rotary_dim": 64,
    "tie_word_embeddings": False,
}
_NAMES: dict[str, Any] = {
    "prefixes": ("", "transformer."),
    "embedding": "transformer.wte",
    "layer": "transformer.h",
    "attention_norm": "ln_1",
    "norm": "transformer.ln_f",
}
_GPT2 = CheckpointLayout(
    **_NAMES,
    positions="transformer.wpe",
    qkv=("attn.c_attn",),
    out="attn.c_proj",
    mlp_norm="ln_2",
    up=("mlp.c_fc",),
    down="mlp.c_proj",
    transposed=True,
)
_GPTJ = CheckpointLayout(
    **_NAMES,
    qkv=("attn.q_proj", "attn.k_proj", "attn.v_proj"),
    out="attn.out_proj",
    up=("mlp.fc_in",),
    down="mlp.fc_out",
    interleaved=True,
)


def read_gpt2(raw: RawConfig) -> DecoderConfig:
    """Read a GPT-2's.

    Raises:
        NotNativeError: an unusual value; so for the other.
    """
    raw.refuse("scale_attn_by_inverse_layer_idx")
    if not raw.flag("scale_attn_weights"):
        raise NotNativeError("its scores are not scaled")
    return DecoderConfig(
        **_parts(raw), position_offset=0, rotaries=(None,) * raw.integer("n_layer"), qkv_bias=True, out_bias=True,
        layout=_GPT2,
    )  # fmt: skip


def read_gptj(raw: RawConfig) -> DecoderConfig:
    """Read a GPT-J's."""
    parts, turned = _parts(raw), raw.integer("rotary_dim")
    head_dim = parts["heads"].head_dim
    rotary = RotaryConfig(10000.0, share=turned / head_dim)
    if turned > head_dim or rotary.turned(head_dim) != turned:
        raise NotNativeError(f"its rotary_dim is {turned}")
    return DecoderConfig(
        **parts, parallel="one norm", rotaries=(rotary,) * parts["num_layers"], head_bias=True, layout=_GPTJ
    )


def _parts(raw: RawConfig) -> dict[str, Any]:
    width, num_layers = raw.integer("n_embd"), raw.integer("n_layer")
    return {
        "vocab_size": raw.integer("vocab_size"),
        "hidden_size": width,
        "ffn_size": raw.optional_integer("n_inner") or 4 * width,
        "num_layers": num_layers,
        "heads": divided_heads(width, raw.integer("n_head")),
        "max_len": raw.integer("n_positions"),
        "norm": layer_norm(raw, "layer_norm_epsilon"),
        "windows": (None,) * num_layers,
        "activation": raw.one_of("activation_function", ACTIVATIONS),
        "gated": False,
        "mlp_bias": True,
        "tied": raw.flag("tie_word_embeddings"),
    }

"""The shape of an OPT model, from its config.json."""

from dataclasses import dataclass
from typing import Any

from pagedchat.layers.activation import ACTIVATIONS
from pagedchat.layers.attention import Heads
from pagedchat.models.raw_config import NotNativeError, RawConfig

DEFAULTS: dict[str, Any] = {
    "vocab_size": 50272,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "ffn_dim": 3072,
    "max_position_embeddings": 2048,
    "do_layer_norm_before": True,
    "_remove_final_layer_norm": False,
    "word_embed_proj_dim": None,
    "num_attention_heads": 12,
    "activation_function": "relu",
    "eos_token_id": 2,
    "enable_bias": True,
    "layer_norm_elementwise_affine": True,
    "tie_word_embeddings": True,
}
"""What a config means that leaves them out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptConfig:
    """What an OPT model is built from."""

    vocab_size: int
    hidden_size: int
    embedding_size: int
    """Width of the token embeddings; opt-350m's are narrower than its layers."""
    ffn_size: int
    num_layers: int
    heads: Heads
    max_len: int
    activation: str
    norm_first: bool
    """Norms before attention and feed-forward; opt-350m alone has them after."""
    final_norm: bool
    bias: bool
    affine_norms: bool
    tied: bool
    """The head is the token embedding."""


def read_opt_config(raw: RawConfig) -> OptConfig:
    """Read it.

    Raises:
        NotNativeError: an unusual value.
    """
    hidden_size, num_heads = raw.integer("hidden_size"), raw.integer("num_attention_heads")
    if hidden_size % num_heads:
        raise NotNativeError(f"{num_heads} heads do not divide a width of {hidden_size}")
    norm_first = raw.flag("do_layer_norm_before")
    return OptConfig(
        vocab_size=raw.integer("vocab_size"),
        hidden_size=hidden_size,
        embedding_size=raw.optional_integer("word_embed_proj_dim") or hidden_size,
        ffn_size=raw.integer("ffn_dim"),
        num_layers=raw.integer("num_hidden_layers"),
        heads=Heads(num_heads, num_heads, hidden_size // num_heads),
        max_len=raw.integer("max_position_embeddings"),
        activation=raw.one_of("activation_function", ACTIVATIONS),
        norm_first=norm_first,
        final_norm=norm_first and not raw.flag("_remove_final_layer_norm"),
        bias=raw.flag("enable_bias"),
        affine_norms=raw.flag("layer_norm_elementwise_affine"),
        tied=raw.flag("tie_word_embeddings"),
    )

"""Llama (Touvron et al. 2023, arXiv 2302.13971) and those built like it, over a paged cache: a flat batch of tokens
in, logits out.

Rotary positions, RMS norms before attention and feed-forward, a gated feed-forward.
"""

from typing import ClassVar

import torch
from torch import nn

from pagedchat.layers.attention import Attention
from pagedchat.layers.embedding import Embedding
from pagedchat.layers.linear import Linear
from pagedchat.layers.mlp import GatedMlp
from pagedchat.layers.paged import PagedAttention
from pagedchat.layers.rms_norm import RMSNorm
from pagedchat.layers.rotary import RotaryEmbedding, Rotation
from pagedchat.layers.weights import Places
from pagedchat.models.llama_config import LlamaConfig
from pagedchat.models.native_model import NativeModel


class LlamaLayer(nn.Module):
    """Attention and feed-forward, each normed and added to what came in.

    Args:
        config: of the model.
        layer_idx: which layer.
    """

    def __init__(self, config: LlamaConfig, layer_idx: int) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.norm_eps
        self.attention = _attention(config, layer_idx)
        self.attention_norm = RMSNorm(width, eps)
        gate_up = Linear(width, 2 * config.ffn_size, bias=config.mlp_bias)
        self.mlp = GatedMlp(gate_up, Linear(config.ffn_size, width, bias=config.mlp_bias), config.activation)
        self.mlp_norm = RMSNorm(width, eps)

    def forward(self, hidden: torch.Tensor, paged: PagedAttention, rotation: Rotation) -> torch.Tensor:
        """`[num_tokens, hidden_size]` -> the same shape."""
        return self.feed_forward(self.attend(hidden, paged, rotation))

    def attend(self, hidden: torch.Tensor, paged: PagedAttention, rotation: Rotation) -> torch.Tensor:
        """The first half."""
        update: torch.Tensor = self.attention(self.attention_norm(hidden), paged, rotation)
        return hidden + update

    def feed_forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The second half."""
        update: torch.Tensor = self.mlp(self.mlp_norm(hidden))
        return hidden + update

    def places(self, name: str) -> Places:
        """For a checkpoint that has this layer as `name`."""
        return {
            **_attention_places(self.attention, f"{name}.self_attn"),
            **self.attention_norm.places(f"{name}.input_layernorm"),
            **self.mlp.gate_up.part_places(
                {f"{name}.mlp.{part}_proj": self.mlp.down.in_features for part in ("gate", "up")}
            ),
            **self.mlp.down.places(f"{name}.mlp.down_proj"),
            **self.mlp_norm.places(f"{name}.post_attention_layernorm"),
        }


def _attention(config: LlamaConfig, layer_idx: int) -> Attention:
    heads, width = config.heads, config.hidden_size
    qkv = Linear(width, heads.query_width + 2 * heads.kv_width, bias=config.qkv_bias)
    out = Linear(heads.query_width, width, bias=config.out_bias)
    norms = (RMSNorm(heads.head_dim, config.norm_eps), RMSNorm(heads.head_dim, config.norm_eps))
    return Attention(
        layer_idx,
        heads,
        qkv,
        out,
        sliding_window=config.windows[layer_idx],
        norms=norms if config.qk_norm else None,
    )


def _attention_places(attention: Attention, name: str) -> Places:
    widths = {"q": attention.heads.query_width, "k": attention.heads.kv_width, "v": attention.heads.kv_width}
    places = attention.qkv.part_places({f"{name}.{part}_proj": width for part, width in widths.items()})
    places |= attention.out.places(f"{name}.o_proj")
    if attention.q_norm is not None and attention.k_norm is not None:
        places |= attention.q_norm.places(f"{name}.q_norm") | attention.k_norm.places(f"{name}.k_norm")
    return places


class LlamaModel(NativeModel):
    """The whole model.

    Args:
        config: from one of the readers in `llama_config`.
    """

    prefixes: ClassVar = ("", "model.")
    embedding_name: ClassVar = "model.embed_tokens.weight"

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.config = config
        self.tied = config.tied
        self.embedding = Embedding(config.vocab_size, config.hidden_size)
        self.rotary = RotaryEmbedding(config.rotary.frequencies(config.heads.head_dim))
        self.layers = nn.ModuleList(LlamaLayer(config, layer_idx) for layer_idx in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)
        head_weight = self.embedding.weight if config.tied else None
        self.head = Linear(config.hidden_size, config.vocab_size, bias=False, weight=head_weight)

    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, paged: PagedAttention, last_rows: torch.Tensor
    ) -> torch.Tensor:
        """See `NativeModel`."""
        hidden = self.embedding(token_ids)
        rotation = self.rotary(positions, hidden.dtype)
        for layer in self.layers:
            hidden = layer(hidden, paged, rotation)
        return self.logits(hidden[last_rows])

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """`[num_rows, hidden_size]` -> `[num_rows, vocab_size]`."""
        logits: torch.Tensor = self.head(self.norm(hidden))
        return logits

    def places(self) -> Places:
        """See `NativeModel`."""
        places = self.embedding.places("model.embed_tokens") | self.norm.places("model.norm")
        for layer_idx, layer in enumerate(self.layers):
            places |= layer.places(f"model.layers.{layer_idx}")  # type: ignore[operator]
        return places if self.tied else places | self.head.places("lm_head")

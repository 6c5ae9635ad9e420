"""OPT (Zhang et al. 2022, arXiv 2205.01068) over a paged cache: a flat batch of tokens in, logits out.

Positions are learned, two rows on; norms come before attention and feed-forward, in opt-350m after them.
"""

from typing import ClassVar

import torch
from torch import nn

from pagedchat.layers.attention import Attention
from pagedchat.layers.embedding import Embedding
from pagedchat.layers.layer_norm import LayerNorm
from pagedchat.layers.linear import Linear
from pagedchat.layers.mlp import Mlp
from pagedchat.layers.paged import PagedAttention
from pagedchat.layers.weights import Places
from pagedchat.models.native_model import NativeModel
from pagedchat.models.opt_config import OptConfig

POSITION_OFFSET = 2
"""Rows of the position table that belong to no position."""
_DECODER = "model.decoder"


class OptLayer(nn.Module):
    """Attention and feed-forward, each added to what came in.

    Args:
        config: of the model.
        layer_idx: which layer.
    """

    def __init__(self, config: OptConfig, layer_idx: int) -> None:
        super().__init__()
        width, bias = config.hidden_size, config.bias
        self.norm_first = config.norm_first
        qkv = Linear(width, 3 * width, bias=bias)
        self.attention = Attention(layer_idx, config.heads, qkv, Linear(width, width, bias=bias))
        self.attention_norm = LayerNorm(width, affine=config.affine_norms)
        up, down = Linear(width, config.ffn_size, bias=bias), Linear(config.ffn_size, width, bias=bias)
        self.mlp = Mlp(up, down, config.activation)
        self.mlp_norm = LayerNorm(width, affine=config.affine_norms)

    def forward(self, hidden: torch.Tensor, paged: PagedAttention) -> torch.Tensor:
        """`[num_tokens, hidden_size]` -> the same shape."""
        return self.feed_forward(self.attend(hidden, paged))

    def attend(self, hidden: torch.Tensor, paged: PagedAttention) -> torch.Tensor:
        """The first half."""
        rows = self.attention_norm(hidden) if self.norm_first else hidden
        hidden = hidden + self.attention(rows, paged)
        return hidden if self.norm_first else self.attention_norm(hidden)

    def feed_forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The second half."""
        rows = self.mlp_norm(hidden) if self.norm_first else hidden
        hidden = hidden + self.mlp(rows)
        return hidden if self.norm_first else self.mlp_norm(hidden)

    def places(self, name: str) -> Places:
        """For a checkpoint that has this layer as `name`."""
        attention, width = f"{name}.self_attn", self.attention.heads.query_width
        return {
            **self.attention.qkv.part_places({f"{attention}.{part}_proj": width for part in "qkv"}),
            **self.attention.out.places(f"{attention}.out_proj"),
            **self.attention_norm.places(f"{name}.self_attn_layer_norm"),
            **self.mlp.up.places(f"{name}.fc1"),
            **self.mlp.down.places(f"{name}.fc2"),
            **self.mlp_norm.places(f"{name}.final_layer_norm"),
        }


class OptModel(NativeModel):
    """The whole model.

    Args:
        config: from `read_opt_config`.
    """

    prefixes: ClassVar = ("", "model.", f"{_DECODER}.")
    embedding_name: ClassVar = f"{_DECODER}.embed_tokens.weight"

    def __init__(self, config: OptConfig) -> None:
        super().__init__()
        narrow, width = config.embedding_size, config.hidden_size
        self.config = config
        self.tied = config.tied
        self.embedding = Embedding(config.vocab_size, narrow)
        self.positions = Embedding(config.max_len, width, offset=POSITION_OFFSET)
        self.project_in = Linear(narrow, width, bias=False) if narrow != width else None
        self.layers = nn.ModuleList(OptLayer(config, layer_idx) for layer_idx in range(config.num_layers))
        self.norm = LayerNorm(width, affine=config.affine_norms) if config.final_norm else None
        self.project_out = Linear(width, narrow, bias=False) if narrow != width else None
        head_weight = self.embedding.weight if config.tied else None
        self.head = Linear(narrow, config.vocab_size, bias=False, weight=head_weight)

    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, paged: PagedAttention, last_rows: torch.Tensor
    ) -> torch.Tensor:
        """See `NativeModel`."""
        hidden = self.embed(token_ids, positions)
        for layer in self.layers:
            hidden = layer(hidden, paged)
        return self.logits(hidden[last_rows])

    def embed(self, token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """`[num_tokens]` each -> `[num_tokens, hidden_size]`."""
        hidden: torch.Tensor = self.embedding(token_ids)
        if self.project_in is not None:
            hidden = self.project_in(hidden)
        placed: torch.Tensor = hidden + self.positions(positions)
        return placed

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """`[num_rows, hidden_size]` -> `[num_rows, vocab_size]`."""
        if self.norm is not None:
            hidden = self.norm(hidden)
        if self.project_out is not None:
            hidden = self.project_out(hidden)
        logits: torch.Tensor = self.head(hidden)
        return logits

    def places(self) -> Places:
        """See `NativeModel`."""
        places = self.embedding.places(f"{_DECODER}.embed_tokens")
        places |= self.positions.places(f"{_DECODER}.embed_positions")
        for layer_idx, layer in enumerate(self.layers):
            places |= layer.places(f"{_DECODER}.layers.{layer_idx}")  # type: ignore[operator]
        if self.norm is not None:
            places |= self.norm.places(f"{_DECODER}.final_layer_norm")
        if self.project_in is not None and self.project_out is not None:
            places |= self.project_in.places(f"{_DECODER}.project_in")
            places |= self.project_out.places(f"{_DECODER}.project_out")
        return places if self.tied else places | self.head.places("lm_head")

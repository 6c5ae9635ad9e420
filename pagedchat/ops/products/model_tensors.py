"""The tensors of a model, whatever its family, as every fast step takes them: one residual stream with norms before
each half of a layer. Knows no modules and no cache.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional

from pagedchat.ops.common.model_sizes import ModelSizes
from pagedchat.ops.common.norm import HeadNorms, Norm
from pagedchat.ops.products.embed_tokens import embed_tokens


@dataclass(frozen=True, slots=True)
class Product:
    """`rows @ weight.T + bias`."""

    weight: torch.Tensor
    """`[out_features, in_features]`."""
    bias: torch.Tensor | None = None
    """`[out_features]`."""

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """`[num_rows, in_features]` -> `[num_rows, out_features]`, by a library."""
        return functional.linear(rows, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class LayerTensors:
    """The tensors of a layer, of one type."""

    layer_idx: int
    sizes: ModelSizes
    """Those of the model."""
    sliding_window: int | None
    """A token sees this many, itself included; None sees all."""
    attention_norm: Norm
    qkv: Product
    """`[qkv_rows, hidden]`: all query heads, then all key heads, then all value heads."""
    out: Product
    """`[hidden, attended]`."""
    mlp_norm: Norm
    up: Product
    """`[middle, hidden]`; gates and then values, twice the rows, where the feed-forward is gated."""
    down: Product
    """`[hidden, middle]`."""
    head_norms: HeadNorms | None = None
    """Of queries and keys, before they are turned."""


@dataclass(frozen=True, slots=True)
class ModelTensors:
    """The tensors of a model."""

    sizes: ModelSizes
    token_vectors: torch.Tensor
    """`[vocab_size, hidden]`."""
    position_vectors: torch.Tensor | None
    """`[max_positions + position_offset, hidden]`."""
    position_offset: int
    """Row of position 0."""
    rotations: torch.Tensor | None
    """`[model_len, head_dim / 2, 2]`, float32: cosine and sine."""
    layers: list[LayerTensors]
    norm: Norm
    """The last one; its kind and epsilon are those of all."""
    head: torch.Tensor
    """`[vocab_size, hidden]`."""

    def embed(self, token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Where the residual stream starts, `[num_tokens, hidden]`; see `embed_tokens`."""
        return embed_tokens(
            self.token_vectors,
            token_ids,
            positions,
            position_vectors=self.position_vectors,
            position_offset=self.position_offset,
        )

"""The tensors that a whole decode step works on; see `persistent_decode`."""

from dataclasses import dataclass

import torch

from pagedchat.ops.common.launch import PIECE_BYTES, address
from pagedchat.ops.common.norm import Norm
from pagedchat.ops.whole_step.plan import PersistentShape


@dataclass(frozen=True, slots=True)
class PersistentLayer:
    """The tensors of a layer, of one 16-bit type."""

    attention_norm: Norm
    qkv: torch.Tensor
    """`[qkv_rows, hidden]`: all query heads, then all key heads, then all value heads."""
    qkv_bias: torch.Tensor | None
    out: torch.Tensor
    """`[hidden, num_heads * head_size]`."""
    out_bias: torch.Tensor | None
    mlp_norm: Norm
    up: torch.Tensor
    """`[middle, hidden]`; gates and then values, twice the rows, where the shape is gated."""
    up_bias: torch.Tensor | None
    down: torch.Tensor
    """`[hidden, middle]`."""
    down_bias: torch.Tensor | None
    key_cache: torch.Tensor
    """`[num_blocks, num_kv_heads, head_size / 8, block_size, 8]`, contiguous."""
    value_cache: torch.Tensor
    """`[num_blocks, num_kv_heads, head_size, block_size]`, contiguous."""

    def addresses(self, qkv_constants: torch.Tensor, up_constants: torch.Tensor) -> list[int]:
        """As `Layer` in the kernel has them, with what `fold_norm` makes of both norms."""
        tensors = (
            self.attention_norm.weight, self.qkv, qkv_constants, self.out, self.out_bias,
            self.mlp_norm.weight, self.up, up_constants, self.down, self.down_bias,
            self.key_cache, self.value_cache,
        )  # fmt: skip
        return [address(tensor) for tensor in tensors]

    def constants(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Of the products behind both norms, as `fold_norm` makes them."""
        return (
            fold_norm(self.attention_norm, self.qkv, self.qkv_bias),
            fold_norm(self.mlp_norm, self.up, self.up_bias),
        )

    @property
    def is_aligned(self) -> bool:
        """Whether all tensors start at 16 bytes, as the kernel's copies do."""
        tensors = (
            self.attention_norm.weight, self.qkv, self.out, self.out_bias, self.mlp_norm.weight, self.up, self.down,
            self.down_bias, self.key_cache, self.value_cache,
        )  # fmt: skip
        return all(address(tensor) % PIECE_BYTES == 0 for tensor in tensors)


def fold_norm(norm: Norm, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """What a product behind a norm needs of the norm when its mean and its factor come in after the product.

    Args:
        norm: over the inner dimension.
        weight: `[rows, inner]`.
        bias: `[rows]` or None.

    Returns:
        `[rows, 2]`, float32: sums of a row's weights times the norm's scales; of its weights times the norm's
        shifts, and the bias.
    """
    rows = weight.float()
    base = torch.zeros(len(rows), device=rows.device) if bias is None else bias.float()
    if norm.bias is not None:
        base = base + (rows * norm.bias).sum(dim=1)
    return torch.stack(((rows * norm.weight).sum(dim=1), base), dim=1)  # no product: it would load a library


@dataclass(frozen=True, slots=True)
class PersistentModel:
    """The tensors of a model with one residual stream and norms before each half of a layer."""

    shape: PersistentShape
    token_vectors: torch.Tensor
    """`[vocab_size, hidden]`."""
    position_vectors: torch.Tensor | None
    position_offset: int
    rotations: torch.Tensor | None
    """`[model_len, head_size / 2, 2]`, float32: cosine and sine."""
    layers: list[PersistentLayer]
    norm: Norm
    """The last one; its kind and epsilon are those of all."""
    head: torch.Tensor
    """`[vocab_size, hidden]`."""
    scale: float
    """Of the scores."""

    @property
    def is_aligned(self) -> bool:
        """Whether all that the kernel reads 16 bytes at a time starts at 16 bytes."""
        vectors = (self.token_vectors, self.position_vectors, self.head)
        return all(address(tensor) % PIECE_BYTES == 0 for tensor in vectors) and all(
            layer.is_aligned for layer in self.layers
        )

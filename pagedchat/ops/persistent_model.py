"""The tensors that a whole decode step works on; see `persistent_decode`."""

from dataclasses import dataclass

import torch

from pagedchat.ops.norm import Norm
from pagedchat.ops.persistent_plan import PersistentShape
from pagedchat.ops.small_batch_linear import address


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

    def addresses(self) -> list[int]:
        """As `Layer` in the kernel has them."""
        tensors = (
            self.attention_norm.weight, self.attention_norm.bias, self.qkv, self.qkv_bias, self.out, self.out_bias,
            self.mlp_norm.weight, self.mlp_norm.bias, self.up, self.up_bias, self.down, self.down_bias,
            self.key_cache, self.value_cache,
        )  # fmt: skip
        return [address(tensor) for tensor in tensors]

    @property
    def is_aligned(self) -> bool:
        """Whether all tensors start at 16 bytes, as the kernel's copies do."""
        return all(place % 16 == 0 for place in self.addresses())


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

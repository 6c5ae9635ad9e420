"""A model's tensors and its cache, as a whole decode step works on them; see `persistent_decode`."""

from dataclasses import dataclass

import torch

from pagedchat.ops.common.launch import address
from pagedchat.ops.common.norm import Norm
from pagedchat.ops.products.model_tensors import LayerTensors, ModelTensors
from pagedchat.ops.whole_step.plan import PersistentShape

LayerCache = tuple[torch.Tensor, torch.Tensor]
"""Keys `[num_blocks, num_kv_heads, head_size / 8, block_size, 8]` and values `[num_blocks, num_kv_heads, head_size,
block_size]` of a layer, contiguous."""


@dataclass(frozen=True, slots=True)
class PersistentModel:
    """A model with its cache, both of one 16-bit type."""

    tensors: ModelTensors
    caches: list[LayerCache]
    """Of each layer."""

    @property
    def shape(self) -> PersistentShape:
        """The sizes of both."""
        _, values = self.caches[0]
        return PersistentShape.of(self.tensors.sizes, values.shape[-1], gated=self.tensors.sizes.gated)

    @property
    def is_aligned(self) -> bool:
        """Whether all that the kernel reads 16 bytes at a time starts at 16 bytes."""
        tensors = self.tensors
        read = [tensors.token_vectors, tensors.position_vectors, tensors.whole_head]
        for layer, cache in zip(tensors.layers, self.caches, strict=True):
            first, second = layer.norms_before
            read += [
                first.weight, layer.qkv.whole, layer.out.whole, layer.out.bias,
                second.weight, layer.up.whole, layer.down.whole, layer.down.bias, *cache,
            ]  # fmt: skip
        return all(address(tensor) % 16 == 0 for tensor in read)

    def constants(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Of the products behind both norms of each layer, as `fold_norm` makes them."""
        return [
            (fold_norm(first, layer.qkv.whole, layer.qkv.bias), fold_norm(second, layer.up.whole, layer.up.bias))
            for layer in self.tensors.layers
            for first, second in [layer.norms_before]
        ]

    def addresses(self, constants: list[tuple[torch.Tensor, torch.Tensor]]) -> list[list[int]]:
        """Of each layer, as `Layer` in the kernel has them, with its `constants`."""
        parts = zip(self.tensors.layers, self.caches, constants, strict=True)
        return [_addresses(layer, cache, *pair) for layer, cache, pair in parts]


def _addresses(
    layer: LayerTensors, cache: LayerCache, qkv_constants: torch.Tensor, up_constants: torch.Tensor
) -> list[int]:
    first, second = layer.norms_before
    tensors = (
        first.weight, layer.qkv.whole, qkv_constants, layer.out.whole, layer.out.bias,
        second.weight, layer.up.whole, up_constants, layer.down.whole, layer.down.bias, *cache,
    )  # fmt: skip
    return [address(tensor) for tensor in tensors]


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

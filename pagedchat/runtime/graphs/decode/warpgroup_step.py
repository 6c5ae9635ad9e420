"""A decode step of a dozen to 256 sequences: too many for the chain of fused kernels, too few for a library.

Products by kernels of our own, each launch beginning while the one before still runs, with biases, activations and
the residual stream in their epilogues; by cuBLAS where that is faster.
"""

import torch

from pagedchat.ops.products.add_norm import add_norm
from pagedchat.ops.products.model_tensors import LayerTensors, ModelTensors, Product
from pagedchat.ops.products.warpgroup_linear import warpgroup_linear
from pagedchat.ops.sampling.decode_state import DecodeState, advance_by_argmax
from pagedchat.runtime.graphs.decode.attention import DecodeAttention
from pagedchat.runtime.graphs.layer_chain import clipped, through_layers


class WarpgroupStep:
    """Seven or eight launches a layer, four of them products.

    Args:
        model: its tensors.
        attention: its rows.
        state: the same rows.
    """

    def __init__(self, model: ModelTensors, attention: DecodeAttention, state: DecodeState) -> None:
        self._model = model
        self._attention = attention
        self._state = state
        self._products = WarpgroupProducts()

    def __call__(self) -> torch.Tensor:
        """See `Step`."""
        model, state = self._model, self._state
        hidden = model.embed(state.token_ids, state.positions)
        if model.sizes.adds_products and model.sizes.residual_scale == 1:
            for layer in model.layers:
                self._add_layer(layer, hidden)
            rows = add_norm(hidden, None, model.norm, overlap=True)
        else:
            stream = through_layers(model, hidden, self._products, self._attention.write_and_read)
            rows = stream.settle(model.norm)
        logits = model.logits(rows, linear=_linear)
        advance_by_argmax(state, logits, overlap=True)
        return logits

    def _add_layer(self, layer: LayerTensors, hidden: torch.Tensor) -> None:
        """Both halves of a layer, added to `hidden` `[num_seqs, width]`."""
        products, out, down = self._products, layer.out, layer.down
        rows = add_norm(hidden, None, layer.attention_norm, overlap=True)
        heads = clipped(layer, products.linear(rows, layer.qkv))
        attended = self._attention.write_and_read(layer, heads)
        middle = None
        if layer.sizes.parallel:  # of the rows that attention has read
            if layer.mlp_norm is not None:
                rows = add_norm(hidden, None, layer.mlp_norm, overlap=True)
            middle = products.middle(rows, layer)
        warpgroup_linear(attended, out.weight, bias=out.bias, residual=hidden, output=hidden, overlap=True)
        if middle is None:
            middle = products.middle(add_norm(hidden, None, layer.mlp_norm, overlap=True), layer)
        warpgroup_linear(middle, down.weight, bias=down.bias, residual=hidden, output=hidden, overlap=True)


class WarpgroupProducts:
    """Those of `warpgroup_linear`, as `layer_chain.Products`."""

    def linear(self, rows: torch.Tensor, product: Product) -> torch.Tensor:
        """See `Products`."""
        return _linear(rows, product.weight, product.bias)

    def middle(self, rows: torch.Tensor, layer: LayerTensors) -> torch.Tensor:
        """See `Products`."""
        sizes, up = layer.sizes, layer.up
        return warpgroup_linear(
            rows, up.weight, bias=up.bias, activation=sizes.activation, paired=sizes.gated, overlap=True
        )


def _linear(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return warpgroup_linear(rows, weight, bias=bias, overlap=True)

"""A decode step of a dozen to 256 sequences: too many for the chain of fused kernels, too few for a library.

Products by kernels of our own, each launch beginning while the one before still runs, with biases, activations and
the residual stream in their epilogues; by cuBLAS where that is faster.
"""

import torch

from pagedchat.ops.products.add_norm import add_norm
from pagedchat.ops.products.model_tensors import LayerTensors, ModelTensors
from pagedchat.ops.products.warpgroup_linear import warpgroup_linear
from pagedchat.ops.sampling.decode_state import DecodeState, advance_by_argmax
from pagedchat.runtime.graphs.decode.attention import DecodeAttention


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

    def __call__(self) -> torch.Tensor:
        """See `Step`."""
        model, state = self._model, self._state
        hidden = model.embed(state.token_ids, state.positions)
        for layer in model.layers:
            self._attend(layer, hidden)
            self._feed_forward(layer, hidden)
        rows = add_norm(hidden, None, model.norm, overlap=True)
        logits = warpgroup_linear(rows, model.head, overlap=True)
        advance_by_argmax(state, logits, overlap=True)
        return logits

    def _attend(self, layer: LayerTensors, hidden: torch.Tensor) -> None:
        """The first half of a layer, added to `hidden` `[num_seqs, width]`."""
        qkv, out = layer.qkv, layer.out
        rows = add_norm(hidden, None, layer.attention_norm, overlap=True)
        heads = warpgroup_linear(rows, qkv.weight, bias=qkv.bias, overlap=True)
        attended = self._attention.write_and_read(layer, heads, self._model.rotations)
        warpgroup_linear(attended, out.weight, bias=out.bias, residual=hidden, output=hidden, overlap=True)

    def _feed_forward(self, layer: LayerTensors, hidden: torch.Tensor) -> None:
        """The second half."""
        sizes, up, down = layer.sizes, layer.up, layer.down
        rows = add_norm(hidden, None, layer.mlp_norm, overlap=True)
        middle = warpgroup_linear(
            rows, up.weight, bias=up.bias, activation=sizes.activation, paired=sizes.gated, overlap=True
        )
        warpgroup_linear(middle, down.weight, bias=down.bias, residual=hidden, output=hidden, overlap=True)

"""A decode step of some dozens of sequences: too many for the chain of fused kernels, too few for a library.

Products by kernels of our own, each launch beginning while the one before still runs, with biases, activations and
the residual stream in their epilogues. The head alone, which is as large as all layers of a small model, is left to
cuBLAS.
"""

from typing import Protocol

import torch
from torch.nn import functional

from pagedchat.ops.add_norm import add_norm
from pagedchat.ops.decode_state import DecodeState, advance_by_argmax
from pagedchat.ops.small_batch_linear import Activation
from pagedchat.runtime.decode_graph.decode_attention import DecodeAttention
from pagedchat.runtime.decode_graph.weights import FusedLayer, FusedModel


class Product(Protocol):
    """`ops.cluster_linear` or `ops.warpgroup_linear`."""

    def __call__(
        self,
        input_rows: torch.Tensor,
        weight: torch.Tensor,
        *,
        bias: torch.Tensor | None = None,
        residual: torch.Tensor | None = None,
        activation: Activation = "none",
        paired: bool = False,
        output: torch.Tensor | None = None,
        overlap: bool = False,
    ) -> torch.Tensor:
        """See there."""
        ...


class ClusterStep:
    """Eight launches a layer, four of them products.

    Args:
        model: its tensors.
        attention: its rows.
        state: the same rows.
        multiply: does the products of the layers.
    """

    def __init__(
        self, model: FusedModel, attention: DecodeAttention, state: DecodeState, multiply: Product
    ) -> None:
        self._model = model
        self._attention = attention
        self._state = state
        self._multiply = multiply

    def __call__(self) -> torch.Tensor:
        """See `Step`."""
        model, state = self._model, self._state
        hidden = model.embed(state.token_ids, state.positions)
        for layer in model.layers:
            self._attend(layer, hidden)
            self._feed_forward(layer, hidden)
        logits = functional.linear(add_norm(hidden, None, model.norm, overlap=True), model.head)
        advance_by_argmax(state, logits, overlap=True)
        return logits

    def _attend(self, layer: FusedLayer, hidden: torch.Tensor) -> None:
        """The first half of a layer, added to `hidden` `[num_seqs, width]`."""
        qkv, out = layer.attention.qkv, layer.attention.out
        rows = add_norm(hidden, None, layer.attention_norm, overlap=True)
        heads = self._multiply(rows, qkv.weight, bias=qkv.bias, overlap=True)
        attended = self._attention.write_and_read(layer.attention, heads, self._model.rotations)
        self._multiply(attended, out.weight, bias=out.bias, residual=hidden, output=hidden, overlap=True)

    def _feed_forward(self, layer: FusedLayer, hidden: torch.Tensor) -> None:
        """The second half."""
        up, down = layer.up, layer.down
        rows = add_norm(hidden, None, layer.mlp_norm, overlap=True)
        middle = self._multiply(
            rows, up.weight, bias=up.bias, activation=layer.activation, paired=layer.paired, overlap=True
        )
        self._multiply(middle, down.weight, bias=down.bias, residual=hidden, output=hidden, overlap=True)

"""A decode step of many sequences: what is captured where products are large enough for a library.

cuBLAS multiplies, with biases and ReLU in its epilogues. What lies between two products is one launch of ours,
which begins while the product before it still runs.
"""

import torch
from torch.nn import functional

from pagedchat.ops.products.add_norm import add_norm
from pagedchat.ops.products.model_tensors import LayerTensors, ModelTensors
from pagedchat.ops.products.silu_and_mul import silu_and_mul
from pagedchat.ops.sampling.decode_state import DecodeState, advance_by_argmax
from pagedchat.runtime.graphs.decode.attention import DecodeAttention


class LibraryStep:
    """Eight launches a layer, four of them products; nine with a gated feed-forward.

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
        update = None
        for layer in model.layers:
            update = self._attend(layer, add_norm(hidden, update, layer.attention_norm, overlap=True))
            update = _feed_forward(layer, add_norm(hidden, update, layer.mlp_norm, overlap=True))
        logits = functional.linear(add_norm(hidden, update, model.norm, overlap=True), model.head)
        advance_by_argmax(state, logits, overlap=True)
        return logits

    def _attend(self, layer: LayerTensors, rows: torch.Tensor) -> torch.Tensor:
        """The first half of a layer: `[num_seqs, width]` -> the same, to be added to the residual stream."""
        attended = self._attention.write_and_read(layer, layer.qkv(rows), self._model.rotations)
        return layer.out(attended)


def _feed_forward(layer: LayerTensors, rows: torch.Tensor) -> torch.Tensor:
    """The second half, likewise."""
    up = layer.up
    if layer.sizes.gated:
        middle = silu_and_mul(up(rows), overlap=True)
    elif up.bias is None:
        middle = functional.relu(up(rows))
    else:
        middle = torch._addmm_activation(up.bias, rows, up.weight.T)
    return layer.down(middle)

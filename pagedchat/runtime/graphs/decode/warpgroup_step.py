"""A decode step of a dozen to 256 sequences: too many for the chain of fused kernels, too few for a library.

Products by kernels of our own, each launch beginning while the one before still runs, with biases, activations and
the residual stream in their epilogues; by cuBLAS where that is faster.
"""

import torch

from pagedchat.ops.products.model_tensors import ModelTensors
from pagedchat.ops.products.warpgroup_linear import warpgroup_linear
from pagedchat.ops.quantized.weight import Weight
from pagedchat.ops.sampling.decode_state import DecodeState, advance_by_argmax
from pagedchat.runtime.graphs.decode.attention import DecodeAttention
from pagedchat.runtime.graphs.decode.screened_end import ScreenedEnd
from pagedchat.runtime.graphs.layer_chain import WarpgroupProducts, through_layers


class WarpgroupStep:
    """Seven or eight launches a layer, four of them products.

    Args:
        model: its tensors.
        attention: its rows.
        state: the same rows.
        end: without logits, where there are to be none.
    """

    def __init__(
        self, model: ModelTensors, attention: DecodeAttention, state: DecodeState, end: ScreenedEnd | None = None
    ) -> None:
        self._model = model
        self._attention = attention
        self._state = state
        self._end = end
        self._products = WarpgroupProducts()

    def __call__(self) -> torch.Tensor:
        """See `Step`."""
        model, state = self._model, self._state
        hidden = model.embed(state.token_ids, state.positions)
        stream = through_layers(model, hidden, self._products, self._attention.write_and_read)
        rows = stream.settle(model.norm)
        if self._end is not None:
            return self._end(rows, None)
        logits = model.logits(rows, linear=_linear)
        advance_by_argmax(state, logits, overlap=True)
        return logits


def _linear(rows: torch.Tensor, weight: Weight, bias: torch.Tensor | None) -> torch.Tensor:
    return warpgroup_linear(rows, weight, bias=bias, overlap=True)

"""A decode step of many sequences: what is captured where products are large enough for a library.

cuBLAS multiplies, with biases and some activations in its epilogues. What lies between two products is one launch
of ours, which begins while the product before it still runs.
"""

import torch

from pagedchat.ops.products.model_tensors import ModelTensors
from pagedchat.ops.sampling.decode_state import DecodeState, advance_by_argmax
from pagedchat.runtime.graphs.decode.attention import DecodeAttention
from pagedchat.runtime.graphs.decode.screened_end import ScreenedEnd
from pagedchat.runtime.graphs.layer_chain import LibraryProducts, through_layers


class LibraryStep:
    """Eight launches a layer, four of them products; nine where no epilogue has the activation.

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
        self._products = LibraryProducts()

    def __call__(self) -> torch.Tensor:
        """See `Step`."""
        model, state = self._model, self._state
        hidden = model.embed(state.token_ids, state.positions)
        stream = through_layers(model, hidden, self._products, self._attention.write_and_read)
        rows = stream.settle(model.norm)
        if self._end is not None:
            return self._end(rows, None)
        logits = model.logits(rows)
        advance_by_argmax(state, logits, overlap=True)
        return logits

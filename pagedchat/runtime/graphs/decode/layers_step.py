"""A decode step of a few sequences whose layers are one launch, between those for its tokens' vectors and for the
next tokens: what is captured for the smallest batches of models too wide for a whole step in one launch.
"""

import torch

from pagedchat.ops.all_layers.plan import LayersPlan
from pagedchat.ops.all_layers.streamed_layers import StreamedLayers
from pagedchat.ops.products.model_tensors import ModelTensors
from pagedchat.ops.products.next_token import logits_argmax
from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.decode.screened_end import ScreenedEnd


class LayersStep:
    """See `ops.all_layers.streamed_layers`.

    Args:
        model: its tensors.
        backend: has the cache.
        state: the rows.
        plan: for as many of them.
        end: without logits, where there are to be none.
    """

    def __init__(
        self,
        model: ModelTensors,
        backend: CudaAttention,
        state: DecodeState,
        plan: LayersPlan,
        end: ScreenedEnd | None = None,
    ) -> None:
        self._model = model
        self._state = state
        self._end = end
        self._layers = StreamedLayers(model, [backend.layer_cache(layer.layer_idx) for layer in model.layers], plan)
        self._best = torch.zeros(len(state.token_ids), dtype=torch.int64, device=state.token_ids.device)

    def __call__(self) -> torch.Tensor:
        """See `steps.Step`."""
        model, state = self._model, self._state
        rows = model.embed(state.token_ids, state.positions)
        self._layers(rows, state)
        if self._end is not None:
            return self._end(rows, model.norm)
        logits = rows.new_empty(len(rows), len(model.head))
        logits_argmax(state, logits, rows, model.head, norm=model.norm, best=self._best, overlap=True)
        return logits

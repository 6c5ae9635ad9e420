"""A decode step of a few sequences as a chain of fused kernels: what is captured for small batches."""

import torch

from pagedchat.ops.attention.call import AttentionOptions
from pagedchat.ops.products.model_tensors import LayerTensors, ModelTensors
from pagedchat.ops.products.next_token import logits_argmax
from pagedchat.ops.products.qkv_to_cache import qkv_to_cache
from pagedchat.ops.products.small_batch_linear import small_batch_linear
from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.decode.attention import DecodeAttention


class FusedStep:
    """A chain of launches, five a layer, each of which begins while the one before still runs.

    Where queries and keys are normed there are six: in the kernel that makes them no thread block has a whole head.

    Args:
        model: its tensors.
        backend: has the cache.
        attention: its rows.
        state: the same rows.
    """

    def __init__(
        self, model: ModelTensors, backend: CudaAttention, attention: DecodeAttention, state: DecodeState
    ) -> None:
        self._model = model
        self._backend = backend
        self._attention = attention
        self._state = state
        self._best = torch.zeros(len(state.token_ids), dtype=torch.int64, device=state.token_ids.device)

    def __call__(self) -> torch.Tensor:
        """See `Step`."""
        model, state = self._model, self._state
        hidden = model.embed(state.token_ids, state.positions)
        for layer in model.layers:
            self._attend(layer, hidden)
            self._feed_forward(layer, hidden)
        logits = hidden.new_empty(len(hidden), len(model.head))
        logits_argmax(state, logits, hidden, model.head, norm=model.norm, best=self._best, overlap=True)
        return logits

    def _attend(self, layer: LayerTensors, hidden: torch.Tensor) -> None:
        """The first half of a layer, added to `hidden` `[num_seqs, width]`."""
        attend = self._attended if layer.head_norms is None else self._normed_and_attended
        out, attended = layer.out, attend(layer, hidden)
        small_batch_linear(attended, out.weight, bias=out.bias, residual=hidden, output=hidden, overlap=True)

    def _attended(self, layer: LayerTensors, hidden: torch.Tensor) -> torch.Tensor:
        """What the way out multiplies, `[num_seqs, num_heads * head_dim]`."""
        sizes, qkv = layer.sizes, layer.qkv
        query = hidden.new_empty(len(hidden), sizes.num_heads, sizes.head_dim)
        qkv_to_cache(
            query,
            *self._backend.layer_cache(layer.layer_idx),
            hidden,
            qkv.weight,
            self._state.block_tables,
            self._state.positions,
            bias=qkv.bias,
            norm=layer.attention_norm,
            rotations=self._model.rotations,
            overlap=True,
        )
        options = AttentionOptions(scale=sizes.scale, sliding_window=layer.sliding_window)
        return self._attention.read(layer.layer_idx, query, options, overlap=True).flatten(1)

    def _normed_and_attended(self, layer: LayerTensors, hidden: torch.Tensor) -> torch.Tensor:
        """The same where queries and keys are normed before they are turned."""
        qkv = layer.qkv
        heads = small_batch_linear(hidden, qkv.weight, bias=qkv.bias, norm=layer.attention_norm, overlap=True)
        return self._attention.write_and_read(layer, heads, self._model.rotations)

    def _feed_forward(self, layer: LayerTensors, hidden: torch.Tensor) -> None:
        """The second half."""
        sizes, up, down = layer.sizes, layer.up, layer.down
        middle = small_batch_linear(
            hidden,
            up.weight,
            bias=up.bias,
            norm=layer.mlp_norm,
            activation=sizes.activation,
            paired=sizes.gated,
            overlap=True,
        )
        small_batch_linear(middle, down.weight, bias=down.bias, residual=hidden, output=hidden, overlap=True)

"""A decode step of a few sequences as a chain of fused kernels: what is captured for small batches."""

import torch

from pagedchat.ops.attention.call import AttentionOptions
from pagedchat.ops.products.next_token import logits_argmax
from pagedchat.ops.products.qkv_to_cache import qkv_to_cache
from pagedchat.ops.products.small_batch_linear import small_batch_linear
from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.decode.attention import DecodeAttention
from pagedchat.runtime.graphs.weights import FusedLayer, FusedModel


class FusedStep:
    """A chain of launches, five a layer, each of which begins while the one before still runs.

    Args:
        model: its tensors.
        backend: has the cache.
        attention: its rows.
        state: the same rows.
    """

    def __init__(
        self, model: FusedModel, backend: CudaAttention, attention: DecodeAttention, state: DecodeState
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

    def _attend(self, layer: FusedLayer, hidden: torch.Tensor) -> None:
        """The first half of a layer, added to `hidden` `[num_seqs, width]`."""
        attention, heads = layer.attention, layer.attention.heads
        query = hidden.new_empty(len(hidden), heads.num_heads, heads.head_dim)
        qkv_to_cache(
            query,
            *self._backend.layer_cache(attention.layer_idx),
            hidden,
            attention.qkv.weight,
            self._state.block_tables,
            self._state.positions,
            bias=attention.qkv.bias,
            norm=layer.attention_norm,
            rotations=self._model.rotations,
            overlap=True,
        )
        options = AttentionOptions(scale=attention.scale, sliding_window=attention.sliding_window)
        attended = self._attention.read(attention.layer_idx, query, options, overlap=True).flatten(1)
        out = attention.out
        small_batch_linear(attended, out.weight, bias=out.bias, residual=hidden, output=hidden, overlap=True)

    def _feed_forward(self, layer: FusedLayer, hidden: torch.Tensor) -> None:
        """The second half."""
        middle = small_batch_linear(
            hidden,
            layer.up.weight,
            bias=layer.up.bias,
            norm=layer.mlp_norm,
            activation=layer.activation,
            paired=layer.paired,
            overlap=True,
        )
        down = layer.down
        small_batch_linear(middle, down.weight, bias=down.bias, residual=hidden, output=hidden, overlap=True)

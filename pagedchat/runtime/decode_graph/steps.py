"""The work of one decode step over the rows of a `DecodeState`: what is captured. Waits for nothing.

Two kinds: the model's own modules over a paged attention that reads its batch from the device, for any model and
batch; and a chain of fused kernels, each begun while the one before it still runs, for a few sequences.
"""

from collections.abc import Callable

import torch

from pagedchat.ops.attention_options import AttentionOptions
from pagedchat.ops.decode_state import DecodeState, advance_by_argmax, replace_tokens, slots_of
from pagedchat.ops.embed_tokens import embed_tokens
from pagedchat.ops.next_token import logits_argmax
from pagedchat.ops.paged_attention_simt import paged_attention_simt
from pagedchat.ops.paged_attention_split import launch_split
from pagedchat.ops.qkv_to_cache import qkv_to_cache
from pagedchat.ops.reshape_and_cache import reshape_and_cache
from pagedchat.ops.sample import sample
from pagedchat.ops.small_batch_linear import small_batch_linear
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.decode_graph.weights import FusedLayer, FusedModel

Step = Callable[[], torch.Tensor]
"""Computes one token of every row and moves the state on; returns the logits, `[num_seqs, vocab_size]`."""

_FILLED = 0.75
"""Share of a bucket's context that is taken to be used, where the work of attention is divided."""


class DecodeAttention:
    """`layers.paged.PagedAttention` for one token of each row.

    Args:
        backend: has the cache.
        state: the rows.
        max_seq_len: no row is longer.
    """

    def __init__(self, backend: CudaAttention, state: DecodeState, max_seq_len: int) -> None:
        self._backend = backend
        self._state = state
        self._max_seq_len = max_seq_len
        self._slots = torch.empty(0, dtype=torch.int64)

    def begin(self) -> None:
        """A step begins: find the slots of its tokens."""
        state = self._state
        self._slots = slots_of(state.positions, state.block_tables, self._backend.shape.block_size)

    def write(self, layer_idx: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """See `layers.paged.PagedAttention`."""
        reshape_and_cache(key, value, *self._backend.layer_cache(layer_idx), self._slots)

    def attend(
        self,
        layer_idx: int,
        query: torch.Tensor,
        _key: torch.Tensor,
        _value: torch.Tensor,
        *,
        scale: float,
        sliding_window: int | None,
        cap: float | None,
    ) -> torch.Tensor:
        """See `layers.paged.PagedAttention`."""
        options = AttentionOptions(scale=scale, sliding_window=sliding_window, cap=cap)
        return self.read(layer_idx, query, options)

    def read(
        self, layer_idx: int, query: torch.Tensor, options: AttentionOptions, *, overlap: bool = False
    ) -> torch.Tensor:
        """Attention over what is in the cache; `overlap` as in `launch_split`."""
        state = self._state
        inputs = (query, *self._backend.layer_cache(layer_idx), state.block_tables, state.seq_lens)
        output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        if not (query.is_cuda and self._backend.on_tensor_cores):
            return paged_attention_simt(*inputs, options, output=output)
        num_tokens = int(len(query) * self._max_seq_len * _FILLED)
        launch_split(*inputs, options, self._max_seq_len, num_tokens, output, None, overlap)
        return output


class ModuleStep:
    """The forward pass of a model's own modules.

    Args:
        model: a `NativeModel`.
        attention: its rows.
        state: the same rows.
    """

    def __init__(self, model: torch.nn.Module, attention: DecodeAttention, state: DecodeState) -> None:
        self._model = model
        self._attention = attention
        self._state = state
        self._rows = torch.arange(len(state.token_ids), device=state.token_ids.device)

    def __call__(self) -> torch.Tensor:
        """See `Step`."""
        state = self._state
        self._attention.begin()
        positions = state.positions.clamp(min=0)
        logits: torch.Tensor = self._model(state.token_ids, positions, self._attention, self._rows)
        logits = logits.contiguous()
        advance_by_argmax(state, logits)
        return logits


class DrawnStep:
    """Another step, with tokens drawn instead of the most likely ones.

    Args:
        step: makes the logits.
        state: the rows.
        sampling: how each row draws, `[num_seqs, ROW_WORDS]`, int32.
    """

    def __init__(self, step: Step, state: DecodeState, sampling: torch.Tensor) -> None:
        self._step = step
        self._state = state
        self._sampling = sampling

    def __call__(self) -> torch.Tensor:
        """See `Step`."""
        logits = self._step()
        # The positions are moved on by now: they are those of the tokens to be drawn.
        replace_tokens(self._state, sample(logits, self._sampling, self._state.positions))
        return logits


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
        hidden = embed_tokens(
            model.token_vectors,
            state.token_ids,
            state.positions,
            position_vectors=model.position_vectors,
            position_offset=model.position_offset,
        )
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

"""The work of one decode step over the rows of a `DecodeState`: what is captured. Waits for nothing.

These let cuBLAS multiply and serve any number of sequences; `fused_step` has the one for a few.
"""

from collections.abc import Callable

import torch
from torch.nn import functional

from pagedchat.ops.add_norm import add_norm
from pagedchat.ops.decode_state import DecodeState, advance_by_argmax, replace_tokens
from pagedchat.ops.embed_tokens import embed_tokens
from pagedchat.ops.sample import sample
from pagedchat.runtime.decode_graph.decode_attention import DecodeAttention
from pagedchat.runtime.decode_graph.weights import FusedLayer, FusedModel

Step = Callable[[], torch.Tensor]
"""Computes one token of every row and moves the state on; returns the logits, `[num_seqs, vocab_size]`."""


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


class PreNormStep:
    """The forward pass of a model with learned positions, its products by cuBLAS: for many sequences.

    Takes fewer launches than the modules: sums and norms are one, and so are products and what follows them.

    Args:
        model: its tensors; no rotary positions.
        attention: its rows.
        state: the same rows.
    """

    def __init__(self, model: FusedModel, attention: DecodeAttention, state: DecodeState) -> None:
        self._model = model
        self._attention = attention
        self._state = state

    def __call__(self) -> torch.Tensor:
        """See `Step`."""
        model, state = self._model, self._state
        self._attention.begin()
        hidden = embed_tokens(
            model.token_vectors,
            state.token_ids,
            state.positions,
            position_vectors=model.position_vectors,
            position_offset=model.position_offset,
        )
        update = None
        for layer in model.layers:
            update = self._attend(layer, add_norm(hidden, update, layer.attention_norm))
            update = self._feed_forward(layer, add_norm(hidden, update, layer.mlp_norm))
        logits = functional.linear(add_norm(hidden, update, model.norm), model.head)
        advance_by_argmax(state, logits)
        return logits

    def _attend(self, layer: FusedLayer, rows: torch.Tensor) -> torch.Tensor:
        attention: torch.Tensor = layer.attention(rows, self._attention)
        return attention

    def _feed_forward(self, layer: FusedLayer, rows: torch.Tensor) -> torch.Tensor:
        up = layer.up
        if up.bias is None:
            middle = functional.relu(functional.linear(rows, up.weight))
        else:  # with the activation in the product's epilogue
            middle = torch._addmm_activation(up.bias, rows, up.weight.T)
        update: torch.Tensor = layer.down(middle)
        return update


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

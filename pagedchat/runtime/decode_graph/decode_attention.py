"""The attention of a captured step: one token of each row, which rows being for the device to know."""

import torch

from pagedchat.ops.attention_options import AttentionOptions
from pagedchat.ops.decode_state import DecodeState, slots_of
from pagedchat.ops.paged_attention_simt import paged_attention_simt
from pagedchat.ops.paged_attention_split import launch_split
from pagedchat.ops.reshape_and_cache import reshape_and_cache
from pagedchat.runtime.attention.cuda_backend import CudaAttention

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

"""Beams go on in one another's places: next tokens, block tables, and what last blocks hold.

A row that goes on with another row's beam shares its full blocks and keeps blocks of its own behind them, of which
the first gets a copy of what the other's last block holds.
"""

import torch

from pagedchat.jit.launch import get_kernel, i32
from pagedchat.ops.cache.copy_blocks import BLOCK_DIM, page_rows
from pagedchat.ops.common.checks import check_dtype, check_shape
from pagedchat.ops.common.launch import ceil_div, on_cuda, stream_of
from pagedchat.ops.sampling.decode_state import DecodeState

_THREADS = 128


def move_beams(
    kv_cache: torch.Tensor, state: DecodeState, sources: torch.Tensor, next_tokens: torch.Tensor, block_size: int
) -> None:
    """Carry out what `choose_beams` has decided, before the next step.

    Args:
        kv_cache: `[num_layers, 2, num_blocks, ...]`, written in place; whole 16-byte rows a block on a GPU.
        state: the rows, moved on to the next step; tokens and block tables are written.
        sources: `[num_seqs]`, int32: which row's beam goes on in this row; below 0 nothing happens to the row. A
            row that another one's beam goes on in is nobody's source.
        next_tokens: `[num_seqs]`, int32.
        block_size: token slots in a block.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    num_seqs, max_blocks = state.block_tables.shape
    for name, tensor in (("sources", sources), ("next_tokens", next_tokens)):
        check_shape(name, tensor, num_seqs)
        check_dtype(name, tensor, torch.int32)
    if not on_cuda(kv_cache, sources):
        _move(kv_cache, state, sources.tolist(), next_tokens, block_size)
        return
    num_layers, num_sides, num_blocks = kv_cache.shape[: BLOCK_DIM + 1]
    rows = page_rows(kv_cache)
    tensors = (kv_cache, state.token_ids, state.block_tables, state.positions, sources, next_tokens)
    sizes = (i32(max_blocks), i32(block_size), i32(rows), num_blocks * rows)
    kernel = get_kernel("move_beams", kv_cache.device.index)
    kernel.launch(
        (ceil_div(rows, _THREADS), num_seqs, num_layers * num_sides),
        _THREADS,
        (*[tensor.data_ptr() for tensor in tensors], *sizes),
        stream=stream_of(kv_cache),
    )


def _move(
    kv_cache: torch.Tensor, state: DecodeState, sources: list[int], next_tokens: torch.Tensor, block_size: int
) -> None:
    for row, source in enumerate(sources):
        if source < 0:
            continue
        state.token_ids[row] = next_tokens[row]
        if source == row:
            continue
        num_full, num_inside = divmod(int(state.positions[row]), block_size)
        state.block_tables[row, :num_full] = state.block_tables[source, :num_full]
        if num_inside:
            own, other = state.block_tables[row, num_full], state.block_tables[source, num_full]
            kv_cache[:, :, own] = kv_cache[:, :, other]

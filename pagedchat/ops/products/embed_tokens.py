"""Where a decode step starts: the vectors of its tokens and of their positions."""

import torch
from torch.nn import functional

from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.ops.common.checks import check_dtype, check_same_type, check_shape
from pagedchat.ops.common.launch import PIECE_BYTES, address, element_name, on_cuda, stream_of

NAME = "embed_tokens"
_THREADS = 128


def embed_tokens(
    token_vectors: torch.Tensor,
    token_ids: torch.Tensor,
    positions: torch.Tensor,
    *,
    position_vectors: torch.Tensor | None = None,
    position_offset: int = 0,
    scale: float = 1.0,
    output: torch.Tensor | None = None,
) -> torch.Tensor:
    """The vectors of tokens, by a scale, plus those of their positions.

    Args:
        token_vectors: `[vocab_size, width]`.
        token_ids, positions: `[num_tokens]`, int32; positions below 0 count as 0.
        position_vectors: `[max_positions + position_offset, width]`.
        position_offset: row of position 0.
        scale: of the tokens' vectors.
        output: `[num_tokens, width]`, written; a new one by default.

    Returns:
        `output`.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    num_tokens, width = len(token_ids), token_vectors.shape[1]
    for name, numbers in (("token_ids", token_ids), ("positions", positions)):
        check_shape(name, numbers, num_tokens)
        check_dtype(name, numbers, torch.int32)
    if position_vectors is not None:
        check_shape("position_vectors", position_vectors, None, width)
        check_same_type("position_vectors", position_vectors, token_vectors)
    target = token_vectors.new_empty(num_tokens, width) if output is None else output
    check_shape("output", target, num_tokens, width)
    check_same_type("output", target, token_vectors)
    if on_cuda(token_vectors) and width * token_vectors.itemsize % PIECE_BYTES == 0:
        _launch_embed(target, token_vectors, position_vectors, token_ids, positions, position_offset, scale)
        return target
    rows = functional.embedding(token_ids, token_vectors)
    if scale != 1:
        rows = rows * scale
    if position_vectors is not None:
        rows = rows + functional.embedding(positions.clamp(min=0) + position_offset, position_vectors)
    return target.copy_(rows)


def _launch_embed(
    output: torch.Tensor,
    token_vectors: torch.Tensor,
    position_vectors: torch.Tensor | None,
    token_ids: torch.Tensor,
    positions: torch.Tensor,
    position_offset: int,
    scale: float,
) -> None:
    kernel = get_kernel(NAME, output.device.index, ELEMENT=element_name(output.dtype))
    args = (
        output.data_ptr(),
        token_vectors.data_ptr(),
        address(position_vectors),
        token_ids.data_ptr(),
        positions.data_ptr(),
        i32(position_offset),
        i32(output.shape[1]),
        f32(scale),
    )
    threads = min(_THREADS, output.shape[1] * output.itemsize // PIECE_BYTES)
    kernel.launch(len(output), threads, args, stream=stream_of(output))

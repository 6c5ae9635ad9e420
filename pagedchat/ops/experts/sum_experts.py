"""What a token gets from its experts: a weighted sum, in an order that is always the same."""

import torch

from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.ops.common.checks import check_dtype, check_same_type, check_shape
from pagedchat.ops.common.launch import (
    PIECE_BYTES,
    address,
    can_overlap,
    ceil_div,
    element_name,
    on_cuda,
    stream_of,
)
from pagedchat.ops.common.rows import row_by_row
from pagedchat.ops.experts.expert_plan import MOST_PER_TOKEN

NAME = "sum_experts"
_THREADS = 128


def sum_experts(
    products: torch.Tensor,
    weights: torch.Tensor,
    *,
    shared: torch.Tensor | None = None,
    shared_logits: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    residual_scale: float = 1.0,
    batch_invariant: bool = False,
    overlap: bool = False,
) -> torch.Tensor:
    """Sum in float32, slot after slot, and then what all tokens share.

    Args:
        products: `[num_tokens * per_token, width]`, contiguous: pair by pair.
        weights: `[num_tokens, per_token]`, float32.
        shared: `[num_tokens, width]`, contiguous, added; None adds nothing.
        shared_logits: `[num_tokens, 1]`: `shared` is multiplied by their sigmoid.
        residual: `[num_tokens, width]`, contiguous, to which all of it is added, and which is written; None: the
            sum stands alone.
        residual_scale: what the sum is multiplied by before that.
        batch_invariant: a token's numbers do not depend on other tokens, by torch too.
        overlap: the launch may begin before the kernel before it has ended, which makes `products`.

    Returns:
        `[num_tokens, width]`; `residual`, if it is given.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    num_tokens, per_token = weights.shape
    width = products.shape[1]
    check_dtype("weights", weights, torch.float32)
    check_shape("products", products, num_tokens * per_token, None)
    others = ("shared", shared, width), ("shared_logits", shared_logits, 1), ("residual", residual, width)
    for name, tensor, columns in others:
        if tensor is not None:
            check_shape(name, tensor, num_tokens, columns)
            check_same_type(name, tensor, products)
    whole = ("products", products), ("weights", weights), ("shared", shared), ("residual", residual)
    for name, tensor in whole:
        if tensor is not None and not tensor.is_contiguous():
            raise ValueError(f"{name} is not contiguous")
    if not on_cuda(products) or width * products.itemsize % PIECE_BYTES or per_token > MOST_PER_TOKEN:
        total = _summed(products, weights, shared, shared_logits, batch_invariant)
        if residual is None:
            return total.to(products.dtype)
        return residual.copy_(residual.float() + residual_scale * total)
    output = products.new_empty(num_tokens, width) if residual is None else residual
    kernel = get_kernel(NAME, output.device.index, ELEMENT=element_name(output.dtype), PER_TOKEN=per_token)
    args = (
        output.data_ptr(),
        products.data_ptr(),
        weights.data_ptr(),
        address(shared),
        address(shared_logits),
        address(residual),
        f32(residual_scale),
        i32(width),
    )
    grid = (num_tokens, ceil_div(width * output.itemsize, _THREADS * PIECE_BYTES))  # only x goes beyond 65,535
    overlap = overlap and can_overlap(output.device)
    kernel.launch(grid, _THREADS, args, stream=stream_of(output), overlap=overlap)
    return output


def _summed(
    products: torch.Tensor,
    weights: torch.Tensor,
    shared: torch.Tensor | None,
    shared_logits: torch.Tensor | None,
    batch_invariant: bool,
) -> torch.Tensor:
    """In float32: sums and products of single elements, which are the same wherever these stand; a sigmoid is
    not."""
    parts = products.view(*weights.shape, -1).float() * weights[:, :, None]
    total = parts[:, 0]
    for slot in range(1, weights.shape[1]):
        total = total + parts[:, slot]
    if shared is not None:
        factor: torch.Tensor | float = 1.0
        if shared_logits is not None:
            logits = shared_logits.float()
            factor = row_by_row(torch.sigmoid, logits) if batch_invariant else torch.sigmoid(logits)
        total = total + factor * shared.float()
    return total

"""Both products of a mixture of experts by torch's grouped product, for many pairs: their rows are brought into the
order of the experts, multiplied, and brought back. Nothing in it waits for a GPU that has the product itself.
"""

import torch
from torch.nn import functional

from pagedchat.ops.common.checks import check_dtype, check_shape
from pagedchat.ops.products.activate import activate


def library_experts(
    rows: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor, experts: torch.Tensor, order: torch.Tensor
) -> torch.Tensor:
    """`down @ (silu(gate) * value)` of each pair of a token and an expert.

    Args:
        rows: `[num_tokens, hidden]`.
        gate_up: `[num_experts, 2 * width, hidden]`, gates first.
        down: `[num_experts, hidden, width]`.
        experts: `[num_tokens, per_token]`, int32.
        order: `[num_pairs]`, int32: pairs, those of an expert together and expert by expert.

    Returns:
        `[num_pairs, hidden]`, pair by pair.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    num_experts, hidden, width = down.shape
    num_tokens, per_token = experts.shape
    check_shape("rows", rows, num_tokens, hidden)
    check_shape("gate_up", gate_up, num_experts, 2 * width, hidden)
    check_shape("order", order, num_tokens * per_token)
    check_dtype("order", order, torch.int32)
    order = order.clamp(0, len(order) - 1)  # whatever is in it where kernels are looked for, and none has made it
    behind = torch.arange(1, num_experts + 1, dtype=torch.int32, device=rows.device)
    ends = torch.searchsorted(experts.flatten()[order], behind, out_int32=True)  # where each expert's pairs end
    sorted_rows = rows.index_select(0, order // per_token)
    both = _multiply(sorted_rows, gate_up, ends)
    products = _multiply(activate(both, "silu", paired=True), down, ends)
    return torch.empty_like(products).index_copy_(0, order.long(), products)


def _multiply(rows: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    product: torch.Tensor = functional.grouped_mm(rows, weights.transpose(1, 2), offs=ends)
    return product

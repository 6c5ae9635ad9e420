"""Both products of a mixture of experts by torch's grouped product, for our kernels to be measured against. Rows
are brought into the order of the experts, multiplied, and brought back. Does not know how they are measured.
"""

import torch
from torch.nn import functional

from pagedchat.ops.products.activate import activate


def grouped_experts(
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
    """
    behind = torch.arange(1, len(down) + 1, dtype=torch.int32, device=rows.device)
    ends = torch.searchsorted(experts.flatten()[order], behind, out_int32=True)  # where each expert's pairs end
    sorted_rows = rows.index_select(0, order // experts.shape[1])
    both = _multiply(sorted_rows, gate_up, ends)
    products = _multiply(activate(both, "silu", paired=True), down, ends)
    return torch.empty_like(products).index_copy_(0, order.long(), products)


def _multiply(rows: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    product: torch.Tensor = functional.grouped_mm(rows, weights.transpose(1, 2), offs=ends)
    return product

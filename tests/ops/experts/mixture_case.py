"""What the tests of mixtures of experts share: random mixtures, and in float64 what comes of them."""

from dataclasses import dataclass

import torch

from tests.ops.products.small_batch_case import normal


@dataclass(frozen=True, slots=True)
class Mixture:
    """Of `[num_experts, ...]` weights, and tokens for it."""

    rows: torch.Tensor
    logits: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    per_token: int


def make_mixture(
    num_tokens: int,
    num_experts: int,
    per_token: int,
    *,
    hidden: int = 64,
    width: int = 32,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> Mixture:
    """So that products are around one."""
    return Mixture(
        normal(num_tokens, hidden, device=device, dtype=dtype),
        normal(num_tokens, num_experts, device=device, dtype=dtype, scale=2.0),
        normal(num_experts, 2 * width, hidden, device=device, dtype=dtype, scale=hidden**-0.5),
        normal(num_experts, hidden, width, device=device, dtype=dtype, scale=width**-0.5),
        per_token,
    )


def exact_routes(logits: torch.Tensor, per_token: int, *, renormalised: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Experts, int64, and weights, float64, on the CPU; of equal logits the first comes first."""
    values = logits.cpu().double()
    experts = values.argsort(dim=-1, descending=True, stable=True)[:, :per_token]
    weights = values.softmax(dim=-1).gather(1, experts)
    return experts, weights / weights.sum(dim=-1, keepdim=True) if renormalised else weights


def exact_products(
    rows: torch.Tensor, weight: torch.Tensor, experts: torch.Tensor, *, paired: bool
) -> torch.Tensor:
    """`[num_pairs, out_features]`, float64, on the CPU, pair by pair."""
    values, weights, flat = rows.cpu().double(), weight.cpu().double(), experts.cpu().flatten().tolist()
    pairs_per_row = len(flat) // len(values)
    products = torch.stack([weights[expert] @ values[i // pairs_per_row] for i, expert in enumerate(flat)])
    if not paired:
        return products
    gate, value = products.chunk(2, dim=-1)
    return gate * gate.sigmoid() * value

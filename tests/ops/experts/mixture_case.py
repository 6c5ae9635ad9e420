"""What the tests of mixtures of experts share: random mixtures, and in float64 what comes of them."""

from dataclasses import dataclass

import torch

from pagedchat.ops.experts.gate import SILU, Gate
from pagedchat.ops.experts.mix_experts import Experts
from tests.ops.products.small_batch_case import normal

CLAMPED = Gate(limit=1.5, sharpness=1.702)
"""As gpt-oss has it, with a limit that many numbers are beyond."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """Of `[num_experts, ...]` weights, and tokens for it."""

    rows: torch.Tensor
    logits: torch.Tensor
    experts: Experts
    per_token: int
    gate: Gate = SILU


def make_mixture(
    num_tokens: int,
    num_experts: int,
    per_token: int,
    *,
    hidden: int = 64,
    width: int = 32,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    gate: Gate = SILU,
) -> Mixture:
    """So that products are around one; with biases where the gate is not the usual one."""
    weights = (
        normal(num_experts, 2 * width, hidden, device=device, dtype=dtype, scale=hidden**-0.5),
        normal(num_experts, hidden, width, device=device, dtype=dtype, scale=width**-0.5),
    )
    biases = [normal(*weight.shape[:2], device=device, dtype=dtype, scale=0.5, seed=9) for weight in weights]
    return Mixture(
        normal(num_tokens, hidden, device=device, dtype=dtype),
        normal(num_tokens, num_experts, device=device, dtype=dtype, scale=2.0),
        Experts(*weights) if gate == SILU else Experts(*weights, *biases),
        per_token,
        gate,
    )


def exact_routes(logits: torch.Tensor, per_token: int, *, renormalised: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Experts, int64, and weights, float64, on the CPU; of equal logits the first comes first."""
    values = logits.cpu().double()
    experts = values.argsort(dim=-1, descending=True, stable=True)[:, :per_token]
    weights = values.softmax(dim=-1).gather(1, experts)
    return experts, weights / weights.sum(dim=-1, keepdim=True) if renormalised else weights


def exact_products(
    rows: torch.Tensor,
    weight: torch.Tensor,
    experts: torch.Tensor,
    *,
    paired: bool,
    bias: torch.Tensor | None = None,
    gate: Gate = SILU,
) -> torch.Tensor:
    """`[num_pairs, out_features]`, float64, on the CPU, pair by pair."""
    values, weights, flat = rows.cpu().double(), weight.cpu().double(), experts.cpu().flatten().tolist()
    pairs_per_row = len(flat) // len(values)
    products = torch.stack([weights[expert] @ values[i // pairs_per_row] for i, expert in enumerate(flat)])
    if bias is not None:
        products += bias.cpu().double()[flat]
    if not paired:
        return products
    gates, others = products.chunk(2, dim=-1)
    if gate.limit is None:
        return gates * gates.sigmoid() * others
    gates, others = gates.clamp(max=gate.limit), others.clamp(-gate.limit, gate.limit)
    return gates * (gate.sharpness * gates).sigmoid() * (others + 1)

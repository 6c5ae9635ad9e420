"""A mixture of experts (Shazeer et al. 2017, arXiv 1701.06538) in place of a feed-forward: of many small gated
feed-forwards a router gives each token a few. Knows nothing of attention or of how the products are done.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from pagedchat.layers.arithmetic import Calculating
from pagedchat.layers.linear import Linear
from pagedchat.layers.mlp import GatedMlp
from pagedchat.layers.weights import Places, empty_parameter
from pagedchat.ops.experts.expert_plan import distinct_pairs
from pagedchat.ops.experts.expert_weight import ExpertWeight
from pagedchat.ops.experts.gate import SILU, Gate
from pagedchat.ops.experts.mix_experts import MOST_EXPERTS, Experts, mix_experts

__all__ = ["MOST_EXPERTS", "Gate", "MixtureConfig", "SparseMlp", "StackedExperts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureConfig:
    """What the mixtures of a model have in common."""

    num_experts: int
    per_token: int
    """Experts of a token: those with the highest logits of the router."""
    width: int
    """Of the middle of an expert."""
    renormalised: bool
    """The weights of a token's experts sum to one: a softmax over their logits alone. Else they are what a softmax
    over all experts gives them."""
    biases: bool = False
    """The router has them, and both products of each expert."""
    gate: Gate = SILU
    """What is between these products."""
    shared_width: int | None = None
    """Of the middle of an expert that all tokens have besides; None: there is none."""
    gated_share: bool = False
    """What it gives is multiplied by a sigmoid of the token."""


class ExpertProducts(Protocol):
    """Both products of each expert, however they are kept."""

    @property
    def gate_up(self) -> ExpertWeight:
        """`[num_experts, 2 * width, hidden_size]`, gates first."""

    @property
    def down(self) -> ExpertWeight:
        """`[num_experts, hidden_size, width]`."""

    def places(self, expert: int, gate: str, up: str, down: str) -> Places:
        """For a checkpoint that has three products of each expert."""

    def merged_places(self, expert: int, into: str, out: str) -> Places:
        """For one that has two, with a row for each input, in which gates and values take turns."""


class StackedExperts(nn.Module):
    """One tensor for each of both products.

    Args:
        config: of the mixture.
        hidden_size: of the rows.
    """

    def __init__(self, config: MixtureConfig, hidden_size: int) -> None:
        super().__init__()
        self.gate_up = empty_parameter(config.num_experts, 2 * config.width, hidden_size)
        self.down = empty_parameter(config.num_experts, hidden_size, config.width)

    def places(self, expert: int, gate: str, up: str, down: str) -> Places:
        """See `ExpertProducts`."""
        gates, values = self.gate_up[expert].chunk(2)
        return {f"{gate}.weight": gates, f"{up}.weight": values, f"{down}.weight": self.down[expert]}

    def merged_places(self, expert: int, into: str, out: str) -> Places:
        """See `ExpertProducts`."""
        return {into: in_turns(self.gate_up[expert].T), out: self.down[expert].T}


class SparseMlp(Calculating):
    """The weighted sum of a token's experts.

    Args:
        config: of the mixture.
        hidden_size: of the rows.
    """

    def __init__(self, config: MixtureConfig, hidden_size: int) -> None:
        super().__init__()
        shared = config.shared_width
        self.config = config
        self.router = Linear(hidden_size, config.num_experts, bias=config.biases)
        self.experts: ExpertProducts = StackedExperts(config, hidden_size)
        self.gate_up_bias = empty_parameter(config.num_experts, 2 * config.width) if config.biases else None
        self.down_bias = empty_parameter(config.num_experts, hidden_size) if config.biases else None
        self.shared = None if shared is None else _gated(hidden_size, shared)
        gated = shared is not None and config.gated_share
        self.shared_gate = Linear(hidden_size, 1, bias=False) if gated else None

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """`[num_tokens, hidden_size]` -> the same shape."""
        return mix_experts(
            rows,
            self.router(rows),
            Experts(self.experts.gate_up, self.experts.down, self.gate_up_bias, self.down_bias),
            per_token=self.config.per_token,
            renormalised=self.config.renormalised,
            gate=self.config.gate,
            shared=None if self.shared is None else self.shared(rows),
            shared_logits=None if self.shared_gate is None else self.shared_gate(rows),
            batch_invariant=self.arithmetic.batch_invariant,
        )

    def distinct_sizes(self) -> list[int]:
        """Numbers of tokens, one for each kind of kernels that there is for a batch."""
        config, few_bits = self.config, not isinstance(self.experts.down, torch.Tensor)
        found = distinct_pairs(config.num_experts, few_bits=few_bits)
        return [-(-pairs // config.per_token) for pairs in found]


def in_turns(rows: torch.Tensor) -> torch.Tensor:
    """Gates and then values in each row -> `[..., width, 2]`, in whose last two dimensions they take turns."""
    return rows.view(*rows.shape[:-1], 2, -1).transpose(-1, -2)


def _gated(hidden_size: int, width: int) -> GatedMlp:
    gate_up = Linear(hidden_size, 2 * width, bias=False)
    return GatedMlp(gate_up, Linear(width, hidden_size, bias=False), "silu")

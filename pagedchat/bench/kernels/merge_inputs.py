"""Pairs of partial attention results to merge, several sets of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pagedchat.bench.kernels.figures import relative_error
from pagedchat.bench.kernels.random_cache import DEVICE, num_rotated_sets, random_tensor
from pagedchat.bench.kernels.shapes import MergeShape
from pagedchat.bench.kernels.timing import Call


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSet:
    """One merge: outputs `[num_tokens, num_heads, head_size]`, log-sum-exps `[num_tokens, num_heads]`, float32."""

    output: torch.Tensor
    output_lse: torch.Tensor
    prefix: torch.Tensor
    prefix_lse: torch.Tensor
    suffix: torch.Tensor
    suffix_lse: torch.Tensor


class MergeInputs:
    """As many sets as do not fit into the L2 cache together."""

    def __init__(self, shape: MergeShape) -> None:
        self.shape = shape
        self.sets = [_random_set(shape) for _ in range(num_rotated_sets(shape.moved_bytes))]

    def check(self, calls: Sequence[Call]) -> float:
        """Error of the merged output of the first set."""
        first = self.sets[0]
        first.output.fill_(torch.nan)
        calls[0]()
        weight = torch.sigmoid(first.prefix_lse.double() - first.suffix_lse.double()).unsqueeze(-1)
        return relative_error(first.output, first.prefix.double() * weight + first.suffix.double() * (1 - weight))


def _random_set(shape: MergeShape) -> MergeSet:
    def output() -> torch.Tensor:
        return random_tensor(shape.num_tokens, shape.num_heads, shape.head_size)

    def lse() -> torch.Tensor:
        return torch.randn(shape.num_tokens, shape.num_heads, device=DEVICE)

    return MergeSet(
        output=output(), output_lse=lse(), prefix=output(), prefix_lse=lse(), suffix=output(), suffix_lse=lse()
    )

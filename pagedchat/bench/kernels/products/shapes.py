"""The shapes that products are measured at: layers of models, and numbers of tokens."""

from dataclasses import dataclass

from pagedchat.bench.kernels.shapes import Shape


@dataclass(frozen=True, slots=True)
class ExpertsShape(Shape):
    """Both products of a mixture of experts, each of whose tokens has `per_token` experts drawn at random."""

    num_tokens: int
    hidden: int
    width: int
    num_experts: int
    per_token: int

    @property
    def expert_bytes(self) -> int:
        """Bytes of the weights of one expert, of two-byte elements."""
        return 3 * self.hidden * self.width * 2

    @property
    def row_bytes(self) -> int:
        """Bytes of all rows that come in, are in the middle, and go out."""
        num_pairs = self.num_tokens * self.per_token
        return 2 * (self.num_tokens * self.hidden + num_pairs * (2 * self.width + self.hidden))

    @property
    def flops(self) -> int:
        """Operations of all pairs of a token and an expert."""
        return 2 * self.num_tokens * self.per_token * 3 * self.hidden * self.width


@dataclass(frozen=True, slots=True)
class LinearShape(Shape):
    """A product of `num_rows` rows."""

    num_rows: int
    in_features: int
    out_features: int

    @property
    def moved_bytes(self) -> int:
        """Bytes of weight, rows and results, of two-byte elements."""
        return 2 * (self.in_features * self.out_features + self.num_rows * (self.in_features + self.out_features))

    @property
    def flops(self) -> int:
        """Operations."""
        return 2 * self.num_rows * self.in_features * self.out_features


EXPERTS = tuple(
    ExpertsShape(num_tokens, *layer)
    for layer in ((2048, 768, 128, 8), (4096, 14336, 8, 2))
    for num_tokens in (1, 8, 64, 512)
)
"""Layers of Qwen3-30B-A3B and of Mixtral-8x7B."""
INVARIANT = tuple(
    LinearShape(num_rows, *product)
    for product in ((896, 1152), (896, 9728), (4864, 896), (2048, 3072), (2048, 16384), (8192, 2048), (896, 151936))
    for num_rows in (1, 8, 64)
)
"""Products of Qwen2.5-0.5B and Llama-3.2-1B, and the vocabulary of the first."""

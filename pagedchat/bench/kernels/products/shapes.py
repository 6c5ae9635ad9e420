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


@dataclass(frozen=True, slots=True)
class QuantizedShape(Shape):
    """A product of `num_rows` rows with a weight of few bits."""

    kind: str
    """int8, fp8 or int4."""
    group: int
    """Elements of a row that have a scale in common, int4 a minimum too; 0: all of it."""
    num_rows: int
    in_features: int
    out_features: int

    @property
    def bits(self) -> int:
        """Of an element."""
        return 4 if self.kind == "int4" else 8

    @property
    def weight_bytes(self) -> int:
        """Bytes of digits, scales and minimums."""
        groups = self.in_features // (self.group or self.in_features)
        return self.out_features * (self.in_features * self.bits // 8 + groups * (4 if self.kind == "int4" else 2))

    @property
    def moved_bytes(self) -> int:
        """Bytes of the weight, and of rows and results, of two-byte elements."""
        return self.weight_bytes + 2 * self.num_rows * (self.in_features + self.out_features)

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
_PRODUCTS = (
    *((896, 1152), (896, 9728), (4864, 896), (896, 151936)),
    *((2048, 3072), (2048, 16384), (8192, 2048), (2048, 128256)),
    *((4096, 6144), (4096, 4096), (4096, 28672), (14336, 4096), (4096, 128256)),
)
QUANTIZED = tuple(
    QuantizedShape(kind, group, num_rows, *product)
    for product in _PRODUCTS
    for kind, group in (("int8", 0), ("fp8", 0), ("int4", 32), ("int4", 128))
    for num_rows in (1, 8, 16, 32, 64, 256)
)
"""Products of Qwen2.5-0.5B, Llama-3.2-1B and Llama-3.1-8B."""

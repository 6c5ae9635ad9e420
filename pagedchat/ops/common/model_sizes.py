"""How large a model is and what kind of layers it has: all that choosing its kernels goes by. Knows no tensor."""

from dataclasses import dataclass
from typing import Literal, NamedTuple


class ProductSizes(NamedTuple):
    """One of the four products of a layer."""

    name: str
    """As `LayerTensors` has it."""
    in_features: int
    out_features: int
    normed: bool = False
    """Its input comes out of a norm."""
    paired: bool = False
    """Its weight has two rows for each output, a gate and a value."""

    @property
    def num_rows(self) -> int:
        """Of the weight."""
        return self.out_features * (2 if self.paired else 1)

    def __str__(self) -> str:
        """For people: `"up, 768 to 3,072"`."""
        return f"{self.name}, {self.in_features:,} to {self.out_features:,}"


class MixtureSizes(NamedTuple):
    """A mixture of experts, in place of feed-forwards."""

    num_experts: int
    per_token: int
    """Experts of a token."""
    width: int
    """Between the two products of an expert."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSizes:
    """A model whose layers are all alike: attention, then a feed-forward, with one residual stream through all."""

    num_layers: int
    hidden: int
    """Width of the residual stream."""
    middle: int
    """Width between the two products of a feed-forward."""
    num_heads: int
    """Query heads."""
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    norm: Literal["layer", "rms"]
    gated: bool
    """The feed-forward is `down(silu(gate(x)) * up(x))`, else `down(relu(up(x)))`."""
    rotary: bool
    """Queries and keys are turned by their positions, else positions have vectors of their own."""
    normed_heads: bool = False
    """Queries and keys are normed before they are turned."""
    biased_gates: bool = False
    """The product of a gated feed-forward that makes gates and values has biases."""
    num_windowed: int = 0
    """Layers in which a token sees no more than the last ones."""
    capped: bool = False
    """Scores have a soft cap."""
    sloped: bool = False
    """Scores fall with the distance of a key (ALiBi)."""
    mixture: MixtureSizes | None = None
    """Of some layers, or of all."""

    @property
    def attended(self) -> int:
        """Width of all query heads."""
        return self.num_heads * self.head_dim

    @property
    def changes_heads(self) -> bool:
        """Whether something happens to queries and keys between their product and the cache."""
        return self.rotary or self.normed_heads

    @property
    def qkv_rows(self) -> int:
        """Rows of the product that makes queries, keys and values."""
        return self.attended + 2 * self.num_kv_heads * self.head_dim

    @property
    def scale(self) -> float:
        """Of the scores."""
        return float(self.head_dim**-0.5)

    @property
    def activation(self) -> Literal["silu", "relu"]:
        """Of the feed-forward; of the gates alone where it is gated."""
        return "silu" if self.gated else "relu"

    @property
    def products(self) -> tuple[ProductSizes, ...]:
        """Of a layer, in their order."""
        return (
            ProductSizes("qkv", self.hidden, self.qkv_rows, normed=True),
            ProductSizes("out", self.attended, self.hidden),
            ProductSizes("up", self.hidden, self.middle, normed=True, paired=self.gated),
            ProductSizes("down", self.middle, self.hidden),
        )

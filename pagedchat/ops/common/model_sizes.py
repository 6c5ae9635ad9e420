"""How large a model is and what kind of layers it has: all that choosing its kernels goes by. Knows no tensor."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from pagedchat.ops.common.choices import Activation


class ProductSizes(NamedTuple):
    """One of the products of a layer."""

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
    """A model whose layers are alike but for windows and angles: attention and a feed-forward, with one residual
    stream through all. What most do is the default."""

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
    """The feed-forward is `down(activation(gate(x)) * up(x))`, else `down(activation(up(x)))`."""
    activation: Activation
    """Of the feed-forward; of the gates alone where it is gated."""
    rotary: bool
    """Queries and keys of some layers are turned by their positions."""
    all_turn: bool = True
    """Those of every layer are, or of none."""
    part_turned: int | None = None
    """Elements of a head that are turned, the first ones; None: all."""
    normed_heads: bool = False
    """Queries and keys are normed before they are turned."""
    normed_together: bool = False
    """All heads of a token by one norm."""
    out_bias: bool = False
    """The way out of attention has biases."""
    mlp_bias: bool = False
    """The products of the feed-forward have biases."""
    num_windowed: int = 0
    """Layers in which a token sees no more than the last ones."""
    score_scale: float | None = None
    """Factor of the scores; None: one by the square root of `head_dim`."""
    score_cap: float | None = None
    """Soft cap of the scores."""
    sloped: bool = False
    """Scores fall with the distance of a key (ALiBi)."""
    qkv_clip: float | None = None
    """Bound of queries, keys and values."""
    norm_places: Literal["before", "behind", "around", "after sum"] = "before"
    """Where the norms of a half of a layer stand; "after sum": the residual stream itself is normed."""
    parallel: Literal["", "one norm", "two norms"] = ""
    """Both halves of a layer start from the same rows, each behind a norm of its own or behind the same."""
    residual_scale: float = 1.0
    """What both halves are multiplied by before they are added."""
    norm_weights: bool = True
    """Norms of rows multiply by weights."""
    final_norm: bool = True
    """There is a norm behind the last layer."""
    narrow: int | None = None
    """Width of tokens' vectors and of the head where it is not that of the layers."""
    head_bias: bool = False
    """The product with the vocabulary has biases."""
    finishes_logits: bool = False
    """Logits are scaled or capped."""
    mixture: MixtureSizes | None = None
    """Of some layers, or of all."""
    is_part: bool = False
    """Other ranks have the other heads, and other parts of the middle and of the vocabulary; `vocab_size` is the
    rows that are here."""

    @property
    def attended(self) -> int:
        """Width of all query heads."""
        return self.num_heads * self.head_dim

    @property
    def changes_heads(self) -> bool:
        """Whether something happens to queries and keys between their product and the cache."""
        return self.rotary or self.normed_heads

    @property
    def heads_apart(self) -> bool:
        """Whether no kernel changes heads as it makes them: they are normed, bounded or turned in odd parts."""
        return self.normed_heads or self.qkv_clip is not None or (self.part_turned or 0) % 16 != 0

    @property
    def qkv_rows(self) -> int:
        """Rows of the product that makes queries, keys and values."""
        return self.attended + 2 * self.num_kv_heads * self.head_dim

    @property
    def scale(self) -> float:
        """Of the scores."""
        return float(self.head_dim**-0.5) if self.score_scale is None else self.score_scale

    @property
    def adds_products(self) -> bool:
        """Whether products are added to the residual stream, scaled or not; their norms stand before the others."""
        return self.norm_places == "before" and not self.is_part

    @property
    def biased_gates(self) -> bool:
        """Whether the product that makes gates and values has biases."""
        return self.gated and self.mlp_bias

    @property
    def plain_head(self) -> bool:
        """Whether logits are the product of the last rows and the vocabulary, and nothing more."""
        return self.narrow is None and not (self.head_bias or self.finishes_logits or self.is_part)

    @property
    def products(self) -> tuple[ProductSizes, ...]:
        """Of a layer, in their order; of one with a mixture, if there is any, and but for those of its experts."""
        normed = self.adds_products  # else the launch that adds norms too
        attention = (
            ProductSizes("qkv", self.hidden, self.qkv_rows, normed=normed),
            ProductSizes("out", self.attended, self.hidden),
        )
        if self.mixture is not None:
            return *attention, ProductSizes("router", self.hidden, self.mixture.num_experts)
        return (
            *attention,
            ProductSizes("up", self.hidden, self.middle, normed=normed, paired=self.gated),
            ProductSizes("down", self.middle, self.hidden),
        )

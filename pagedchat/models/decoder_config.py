"""A decoder as data: what `decoder.Decoder` is built from. Knows no family and no file."""

from dataclasses import dataclass, field
from typing import Literal

from pagedchat.layers.alibi import Alibi
from pagedchat.layers.attention import Heads
from pagedchat.layers.embedding import rows_of_rank
from pagedchat.layers.experts import MixtureConfig
from pagedchat.layers.norms import NormConfig
from pagedchat.layers.rotary_frequencies import RotaryConfig
from pagedchat.models.checkpoint_layout import CheckpointLayout

NormPlaces = Literal["before", "behind", "around", "after sum"]
"""Where the norms of a half stand: `x + half(norm(x))`, `x + norm(half(x))`, `x + norm(half(norm(x)))`, or
`norm(x + half(x))`."""


@dataclass(frozen=True, slots=True)
class QkNorm:
    """Norms of queries and keys, before they are turned."""

    norm: NormConfig
    over: Literal["head", "each head", "width"] = "head"
    """Head by head with one weight; head by head, each with a weight of its own; all heads of a token together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """A decoder-only model. What most do is the default."""

    # --- how large ---
    vocab_size: int
    hidden_size: int
    ffn_size: int
    num_layers: int
    heads: Heads
    max_len: int

    # --- where the residual stream begins ---
    embedding_size: int | None = None
    """Width of the token embeddings where it is not that of the layers; opt-350m's are narrower."""
    embedding_scale: float = 1.0
    """What they are multiplied by."""
    rounds_embedding_scale: bool = False
    """It is rounded to the model's type before."""
    embedding_norm: bool = False
    """They are normed before the first layer, as layers norm."""
    position_offset: int | None = None
    """Row of position 0 in a table of learned positions; None: there is none."""

    # --- layers ---
    norm: NormConfig
    norm_places: NormPlaces = "before"
    parallel: Literal["", "one norm", "two norms"] = ""
    """Attention and feed-forward start from the same rows, each behind a norm of its own or behind the same."""
    residual_scale: float = 1.0
    """What both halves are multiplied by before they are added."""

    # --- attention ---
    rotaries: tuple[RotaryConfig | None, ...]
    """For each layer how queries and keys are turned; None: they are not."""
    windows: tuple[int | None, ...]
    """For each layer the tokens that a token sees, itself included; None sees all."""
    qk_norm: QkNorm | None = None
    qkv_bias: bool = False
    out_bias: bool = False
    qkv_clip: float | None = None
    """Bound of queries, keys and values."""
    score_scale: float | None = None
    """Factor of the scores; None: one by the square root of `head_dim`."""
    score_cap: float | None = None
    """Soft cap of the scores."""
    alibi: Alibi | None = None
    """How scores fall with the distance of a key; None: they do not."""
    sinks: bool = False
    """Each head of each layer has one more score, learned, of no key."""

    # --- feed-forward ---
    activation: str
    gated: bool = True
    mlp_bias: bool = False
    mixture: MixtureConfig | None = None
    """Of experts, in place of the feed-forward of those layers that are sparse."""
    sparse: tuple[bool, ...] = ()
    """For each layer whether it is; empty: none is."""

    # --- head ---
    final_norm: bool = True
    tied: bool
    """The head is the token embedding."""
    head_bias: bool = False
    logits_scale: float = 1.0
    logits_cap: float | None = None
    """Soft cap of the logits, once they are scaled."""

    layout: CheckpointLayout = field(default_factory=CheckpointLayout)
    """Of checkpoints."""

    part: "Part | None" = None
    """Which part of a model this is, if it is one: `heads` and `ffn_size` are its own, all else the model's."""

    @property
    def num_vocabulary_rows(self) -> int:
        """Rows of the token embeddings and of the head that are here, padding included."""
        return self.vocab_size if self.part is None else rows_of_rank(self.vocab_size, self.part.size)

    @property
    def first_head(self) -> int:
        """Which query head of the model is the first one here."""
        return 0 if self.part is None else self.part.rank * self.heads.num_heads

    @property
    def first_kv_head(self) -> int:
        """Which KV head of the model is the first one here."""
        return 0 if self.part is None else self.part.rank * self.part.whole.heads.num_kv_heads // self.part.size

    @property
    def embedding_width(self) -> int:
        """Of the token embeddings."""
        return self.embedding_size or self.hidden_size

    @property
    def scale(self) -> float:
        """Factor of the scores."""
        return float(self.heads.head_dim**-0.5) if self.score_scale is None else self.score_scale

    def mixture_of(self, layer_idx: int) -> MixtureConfig | None:
        """Of one layer; None: it has a feed-forward."""
        return self.mixture if self.sparse and self.sparse[layer_idx] else None

    @property
    def rotary(self) -> RotaryConfig | None:
        """Of the first layer that turns."""
        return next((rotary for rotary in self.rotaries if rotary is not None), None)


@dataclass(frozen=True, slots=True)
class Part:
    """What one of several ranks has of a model."""

    rank: int
    size: int
    """How many ranks there are."""
    whole: DecoderConfig
    """The model."""

"""Self-attention over a paged cache: one product for queries, keys and values, then attend, then the way out.

Covers grouped heads (fewer KV heads than query heads), rotary embedding, norms of queries and keys, slopes over the
distance and sinks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from pagedchat.layers.alibi import Alibi
from pagedchat.layers.arithmetic import Calculating
from pagedchat.layers.linear import Linear
from pagedchat.layers.norms import Norm
from pagedchat.layers.norms_over_ranks import normed_with_others
from pagedchat.layers.paged import PagedAttention
from pagedchat.layers.rotary import Rotation
from pagedchat.layers.weights import empty_parameter
from pagedchat.ops.cache.heads_to_slots import can_place
from pagedchat.ops.common.norm import HeadNorms
from pagedchat.ops.ranks.company import ALONE, Ranks


@dataclass(frozen=True, slots=True)
class Heads:
    """How the width of an attention is divided."""

    num_heads: int
    """Query heads."""
    num_kv_heads: int
    head_dim: int

    @property
    def query_width(self) -> int:
        """Elements of a token's queries."""
        return self.num_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Elements of a token's keys, or of its values."""
        return self.num_kv_heads * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """How queries are held against keys; as `PagedAttention.attend` takes it."""

    scale: float
    """Factor of the scores."""
    sliding_window: int | None = None
    """A token sees this many, itself included; None sees all."""
    cap: float | None = None
    """Soft cap of the scores."""
    alibi: Alibi | None = None
    """How they fall with the distance of a key; None: they do not."""
    sinks: bool = False
    """Each head has one more score, learned, of no key."""


class Attention(Calculating):
    """The attention of one layer. Its sinks are float32, whatever the type of the other weights.

    Args:
        layer_idx: which layer's keys and values are meant.
        heads: how many, how wide.
        qkv: hidden rows -> queries, keys and values side by side.
        out: queries' width -> hidden rows.
        scores: what becomes of queries and keys.
        norms: of queries and keys, head by head; over the heads of a token together if they are as wide.
        clip: bound of queries, keys and values, once they are normed.
        ranks: who has the other heads that are normed together with these.
    """

    alibi_slopes: torch.Tensor | None

    def __init__(
        self,
        layer_idx: int,
        heads: Heads,
        qkv: Linear,
        out: Linear,
        scores: Scores,
        *,
        norms: tuple[Norm, Norm] | None = None,
        clip: float | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        super().__init__()
        self.layer_idx = layer_idx
        self.heads = heads
        self.scores = scores
        self.clip = clip
        self.qkv, self.out = qkv, out
        self.q_norm = norms[0] if norms else None
        self.k_norm = norms[1] if norms else None
        self._ranks = ranks
        slopes = None if scores.alibi is None else scores.alibi.slopes(heads.num_heads)
        self.register_buffer("alibi_slopes", slopes, persistent=False)
        self.sinks = empty_parameter(heads.num_heads, dtype=torch.float32) if scores.sinks else None

    def forward(
        self,
        rows: torch.Tensor,
        paged: PagedAttention,
        rotation: Rotation | None = None,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """`[num_tokens, hidden_size]` -> the same shape, or `[num_wanted, hidden_size]`.

        Args:
            rows: of the tokens.
            paged: keeps keys and values.
            rotation: of the tokens' positions; None where the embeddings hold them, or nothing does.
            wanted: `[num_wanted]`, int64: the rows whose results are; None: all.
        """
        mixed = self._mixed(rows)
        place = self._placing(mixed, paged, rotation) if self.arithmetic.batch_invariant else None
        if place is None:
            query, key, value = self._changed(mixed, rotation)
            paged.write(self.layer_idx, key, value)
        else:  # in one launch; the cache has the keys and values
            query = key = value = place()
        scores = self.scores
        attended = paged.attend(
            self.layer_idx,
            query,
            key,
            value,
            scale=scores.scale,
            sliding_window=scores.sliding_window,
            cap=scores.cap,
            alibi_slopes=self.alibi_slopes,
            sinks=self.sinks,
        )
        flat = attended.reshape(rows.shape[0], self.heads.query_width)
        product: torch.Tensor = self.out(flat if wanted is None else flat[wanted])
        return product

    def _mixed(self, rows: torch.Tensor) -> torch.Tensor:
        """Query heads, key heads and value heads, `[num_tokens, heads, head_dim]`."""
        num_heads, num_kv_heads = self.heads.num_heads, self.heads.num_kv_heads
        mixed: torch.Tensor = self.qkv(rows).view(rows.shape[0], num_heads + 2 * num_kv_heads, self.heads.head_dim)
        return mixed

    def _placing(
        self, mixed: torch.Tensor, paged: PagedAttention, rotation: Rotation | None
    ) -> Callable[[], torch.Tensor] | None:
        """What norms and turns heads, writes keys and values and returns the queries; None if no kernel does."""
        place: Callable[..., torch.Tensor] | None = getattr(paged, "place_heads", None)
        turns = None if rotation is None else rotation.turns
        q_norm, k_norm = (None if norm is None else norm.of_ops() for norm in (self.q_norm, self.k_norm))
        norms = None if q_norm is None or k_norm is None else HeadNorms(q_norm, k_norm)
        if place is None or (turns is None) != (rotation is None) or (norms is None) != (self.q_norm is None):
            return None
        if self._ranks.size > 1:
            return None
        if self.clip is not None:
            if norms is not None:  # the bound would be between two things that are one launch
                return None
            mixed = mixed.clamp(-self.clip, self.clip)
        return partial(place, self.layer_idx, mixed, norms, turns) if can_place(mixed, norms, turns) else None

    def _changed(
        self, mixed: torch.Tensor, rotation: Rotation | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values, `[num_tokens, heads, head_dim]` each."""
        num_heads, num_kv_heads = self.heads.num_heads, self.heads.num_kv_heads
        q_norm, k_norm = self.q_norm, self.k_norm
        if rotation is None and self.clip is None and q_norm is None:
            query, key, value = torch.split(mixed, [num_heads, num_kv_heads, num_kv_heads], dim=1)
            return query, key, value
        both, value = torch.split(mixed, [num_heads + num_kv_heads, num_kv_heads], dim=1)
        if q_norm is not None and k_norm is not None:
            query, key = torch.split(both, [num_heads, num_kv_heads], dim=1)
            if self._ranks.size > 1:
                query, key = normed_with_others(q_norm, query, k_norm, key, self._ranks)
            else:
                query, key = _normed(q_norm, query), _normed(k_norm, key)
            both = torch.cat((query, key), dim=1)
        if self.clip is not None:
            both, value = both.clamp(-self.clip, self.clip), value.clamp(-self.clip, self.clip)
        if rotation is not None:  # queries and keys in one go, which takes half of the launches
            both = rotation.apply(both)
        query, key = torch.split(both, [num_heads, num_kv_heads], dim=1)
        return query, key, value


def _normed(norm: Norm, heads: torch.Tensor) -> torch.Tensor:
    """`[num_tokens, heads, head_dim]` -> the same shape."""
    if norm.width == heads.shape[2]:
        normed: torch.Tensor = norm(heads)
        return normed
    whole: torch.Tensor = norm(heads.flatten(1))
    return whole.view(heads.shape)

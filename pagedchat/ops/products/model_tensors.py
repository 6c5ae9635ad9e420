"""The tensors of a model, whatever its family, as every fast step takes them: one residual stream through layers of
attention and a feed-forward. Knows no modules and no cache.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from pagedchat.ops.common.model_sizes import ModelSizes
from pagedchat.ops.common.norm import HeadNorms, Norm
from pagedchat.ops.experts.gate import Gate
from pagedchat.ops.experts.mix_experts import Experts
from pagedchat.ops.products.add_norm import add_norm
from pagedchat.ops.products.embed_tokens import embed_tokens
from pagedchat.ops.products.finish_logits import finish_logits
from pagedchat.ops.quantized.multiply import multiply
from pagedchat.ops.quantized.weight import QuantizedWeight, Weight
from pagedchat.ops.ranks.company import ALONE, Ranks, own_rows

Linear = Callable[[torch.Tensor, Weight, torch.Tensor | None], torch.Tensor]
"""`rows @ weight.T + bias`: `[num_rows, in_features]`, `[out_features, in_features]`, `[out_features]`."""


@dataclass(frozen=True, slots=True)
class Product:
    """`rows @ weight.T + bias`."""

    weight: Weight
    """`[out_features, in_features]`."""
    bias: torch.Tensor | None = None
    """`[out_features]`."""

    @property
    def whole(self) -> torch.Tensor:
        """The weight, which launches that are whole steps take in 16 bits."""
        return _whole(self.weight)

    def __call__(self, rows: torch.Tensor, output: torch.Tensor | None = None) -> torch.Tensor:
        """`[num_rows, in_features]` -> `[num_rows, out_features]`, by a library; into `output`, if it is given."""
        return multiply(rows, self.weight, self.bias, out=output)


Multiply = Callable[[torch.Tensor, Product, torch.Tensor | None], torch.Tensor]
"""`[num_rows, in_features]` -> `[num_rows, out_features]`, which is written where it is given."""


@dataclass(frozen=True, slots=True)
class FeedForward:
    """The second half of a layer."""

    up: Product
    """`[middle, hidden]`; gates and then values, twice the rows, where the feed-forward is gated."""
    down: Product
    """`[hidden, middle]`."""

    @property
    def products(self) -> tuple[Product, ...]:
        """Both."""
        return self.up, self.down


@dataclass(frozen=True, slots=True)
class Mixture:
    """A mixture of experts in its place."""

    router: Product
    """`[num_experts, hidden]`."""
    experts: Experts
    per_token: int
    """Experts of a token."""
    renormalised: bool
    """As `mix_experts` has it."""
    gate: Gate
    """What is between the products of an expert."""
    shared: FeedForward | None = None
    """Which all tokens have besides."""
    shared_gate: Product | None = None
    """`[1, hidden]`: `shared` is multiplied by its sigmoid."""

    @property
    def products(self) -> tuple[Product, ...]:
        """All but those of its experts."""
        shared = () if self.shared is None else self.shared.products
        return self.router, *shared, *(() if self.shared_gate is None else (self.shared_gate,))


@dataclass(frozen=True, slots=True)
class LayerTensors:
    """The tensors of a layer, of one type but for weights of few bits."""

    layer_idx: int
    sizes: ModelSizes
    """Those of the model."""
    sliding_window: int | None
    """A token sees this many, itself included; None sees all."""
    attention_norm: Norm | None
    """Before attention; with `parallel` halves behind one norm before both."""
    qkv: Product
    """`[qkv_rows, hidden]`: all query heads, then all key heads, then all value heads, but where these have their
    own."""
    out: Product
    """`[hidden, attended]`."""
    mlp_norm: Norm | None
    """Before the feed-forward."""
    feed: FeedForward | Mixture
    head_norms: HeadNorms | None = None
    """Of queries and keys, before they are turned."""
    rotations: torch.Tensor | None = None
    """`[model_len, turned / 2, 2]`, float32: cosine and sine of the angles of queries and keys; None: none turn."""
    attention_end_norm: Norm | None = None
    """Behind attention; with norms "after sum" of the residual stream then."""
    mlp_end_norm: Norm | None = None
    """The same of the feed-forward."""
    values: Product | None = None
    """`[num_kv_heads * head_dim, hidden]`: all value heads, where their weights have another form than those of
    queries and keys."""
    alibi_slopes: torch.Tensor | None = None
    """`[num_heads]`, float32: how scores fall with the distance of a key."""
    sinks: torch.Tensor | None = None
    """`[num_heads]`, float32: scores without keys."""

    @property
    def products(self) -> tuple[Product, ...]:
        """All but those of experts, in their order; that of values by itself is the last."""
        values = () if self.values is None else (self.values,)
        return self.qkv, self.out, *self.feed.products, *values

    @property
    def fed(self) -> FeedForward:
        """The second half.

        Raises:
            ValueError: it is a mixture of experts.
        """
        if isinstance(self.feed, Mixture):
            raise ValueError(f"layer {self.layer_idx} has a mixture of experts, where a feed-forward is wanted")
        return self.feed

    @property
    def up(self) -> Product:
        """Of `fed`."""
        return self.fed.up

    @property
    def down(self) -> Product:
        """Of `fed`."""
        return self.fed.down

    def heads(self, rows: torch.Tensor, multiply_by: Multiply) -> torch.Tensor:
        """Queries, keys and values side by side, of one product or of two.

        Args:
            rows: `[num_rows, hidden]`.
            multiply_by: who multiplies.

        Returns:
            `[num_rows, qkv_rows]`.
        """
        if self.values is None:
            return multiply_by(rows, self.qkv, None)
        heads, first = self.empty_heads(rows), len(self.qkv.weight)
        multiply_by(rows, self.qkv, heads[:, :first])
        multiply_by(rows, self.values, heads[:, first:])
        return heads

    def empty_heads(self, rows: torch.Tensor) -> torch.Tensor:
        """Room for what `heads` makes of rows."""
        return rows.new_empty(len(rows), self.sizes.qkv_rows)

    @property
    def changes_heads(self) -> bool:
        """Whether something happens to queries and keys between their product and the cache."""
        return self.head_norms is not None or self.rotations is not None

    @property
    def norms_before(self) -> tuple[Norm, Norm]:
        """Those before both halves.

        Raises:
            ValueError: it has none there.
        """
        if self.attention_norm is None or self.mlp_norm is None:
            raise ValueError(f"layer {self.layer_idx} has no norm before each of its halves")
        return self.attention_norm, self.mlp_norm


@dataclass(frozen=True, slots=True)
class ModelTensors:
    """The tensors of a model."""

    sizes: ModelSizes
    token_vectors: torch.Tensor
    """`[vocab_size, hidden]`; with `project_in` as wide as that takes."""
    position_vectors: torch.Tensor | None
    """`[max_positions + position_offset, hidden]`."""
    position_offset: int
    """Row of position 0."""
    rotations: torch.Tensor | None
    """Those of the first layer that has any: of all of them in models that whole steps do."""
    layers: list[LayerTensors]
    norm: Norm | None
    """The last one."""
    head: Weight
    """`[vocab_size, hidden]`; with `project_out` as wide as that makes."""
    head_bias: torch.Tensor | None = None
    """`[vocab_size]`."""
    embedding_scale: float = 1.0
    """Of tokens' vectors."""
    embedding_norm: Norm | None = None
    """Behind that."""
    project_in: Weight | None = None
    """`[hidden, narrower]`: what tokens' vectors go through."""
    project_out: Weight | None = None
    """`[narrower, hidden]`: what rows go through before the head."""
    logits_scale: float = 1.0
    logits_cap: float | None = None
    """Soft cap of the logits, once they are scaled."""
    ranks: Ranks = ALONE
    """Who has the other parts, where this is one."""
    vocab_size: int = 0
    """Of the whole model, where this is a part of one."""

    @property
    def whole_head(self) -> torch.Tensor:
        """`head`, as `Product.whole`."""
        return _whole(self.head)

    @property
    def last_norm(self) -> Norm:
        """`norm`.

        Raises:
            ValueError: there is none.
        """
        if self.norm is None:
            raise ValueError("the model has no norm behind its last layer")
        return self.norm

    def embed(self, token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Where the residual stream starts, `[num_tokens, hidden]`; see `embed_tokens`."""
        scale, offset, vectors = self.embedding_scale, self.position_offset, self.position_vectors
        if self.sizes.is_part:
            return self._embed_over_ranks(token_ids, positions)
        if self.project_in is None and self.embedding_norm is None:
            return embed_tokens(
                self.token_vectors,
                token_ids,
                positions,
                position_vectors=vectors,
                position_offset=offset,
                scale=scale,
            )
        return self._with_positions(
            self._widened(embed_tokens(self.token_vectors, token_ids, positions, scale=scale)), positions
        )

    def _embed_over_ranks(self, token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        own, is_elsewhere = own_rows(token_ids, len(self.token_vectors), self.ranks)
        rows = embed_tokens(self.token_vectors, own, positions, scale=self.embedding_scale)
        return self._with_positions(self._widened(self.ranks.sum(rows.masked_fill_(is_elsewhere, 0))), positions)

    def _widened(self, rows: torch.Tensor) -> torch.Tensor:
        """Tokens' vectors, normed where they are, as wide as the layers."""
        rows = add_norm(rows, None, self.embedding_norm)
        return rows if self.project_in is None else multiply(rows, self.project_in)

    def _with_positions(self, rows: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        if self.position_vectors is not None:
            rows += functional.embedding(positions.clamp(min=0) + self.position_offset, self.position_vectors)
        return rows

    def logits(
        self, rows: torch.Tensor, output: torch.Tensor | None = None, *, linear: Linear = multiply
    ) -> torch.Tensor:
        """`[num_rows, hidden]`, normed -> `[num_rows, vocab_size]`; `output` is written if given, by a library."""
        if self.project_out is not None:
            rows = multiply(rows, self.project_out)
        if self.sizes.is_part:
            logits = self.of_all_ranks(linear(rows, self.head, self.head_bias))
            logits = logits if output is None else output.copy_(logits)
        elif output is None:
            logits = linear(rows, self.head, self.head_bias)
        else:
            logits = multiply(rows, self.head, self.head_bias, out=output)
        finish_logits(logits, scale=self.logits_scale, cap=self.logits_cap, overlap=True)
        return logits

    def of_all_ranks(self, logits: torch.Tensor) -> torch.Tensor:
        """`[num_rows, rows of the head]` -> `[num_rows, vocab_size]`: themselves where the head is whole."""
        if not self.sizes.is_part:
            return logits
        return self.ranks.side_by_side(logits)[:, : self.vocab_size].contiguous()


def _whole(weight: Weight) -> torch.Tensor:
    if isinstance(weight, QuantizedWeight):
        raise ValueError("a weight of few bits, where one of 16 is wanted")
    return weight

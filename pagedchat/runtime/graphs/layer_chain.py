"""The layers of any decoder that `ModelTensors` describe in few launches: products, and between them one for sums
and norms. Who multiplies and who attends is given; knows no cache and no kind of step.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from itertools import zip_longest
from typing import Protocol

import torch

from pagedchat.jit.launch import rehearses
from pagedchat.ops.common.model_sizes import ModelSizes
from pagedchat.ops.common.norm import Norm
from pagedchat.ops.experts.mix_experts import mix_experts
from pagedchat.ops.products.add_norm import Update, add_norm
from pagedchat.ops.products.deferred_norm import DeferredRows, NormedRows
from pagedchat.ops.products.library_linear import library_middle
from pagedchat.ops.products.model_tensors import FeedForward, LayerTensors, Mixture, ModelTensors, Product
from pagedchat.ops.products.warpgroup_linear import deferred_rows, side_by_side, warpgroup_linear
from pagedchat.ops.ranks.company import ALONE, Ranks


class Products(Protocol):
    """Who multiplies."""

    def linear(self, rows: torch.Tensor, product: Product, output: torch.Tensor | None = None) -> torch.Tensor:
        """`[num_rows, in_features]` -> `[num_rows, out_features]`, which is written where it is given."""
        ...

    def heads(self, rows: torch.Tensor, layer: LayerTensors) -> torch.Tensor:
        """Queries, keys and values: `[num_rows, hidden]` -> `[num_rows, qkv_rows]`."""
        ...

    def middle(self, rows: torch.Tensor, up: Product, sizes: ModelSizes) -> torch.Tensor:
        """The first half of a feed-forward: `[num_rows, hidden]` -> `[num_rows, middle]`."""
        ...


Attend = Callable[[LayerTensors, torch.Tensor], torch.Tensor]
"""From the product for queries, keys and values, `[num_rows, qkv_rows]`, to what the way out multiplies,
`[num_rows, attended]`; the former may be written."""


def layers_to_run(model: ModelTensors) -> list[LayerTensors]:
    """All layers; in a rehearsal the first one, which has no sum to finish, of the others one of each kind, since
    those alike launch the same kernels, and the last one, behind which there is none.

    With all of them a rehearsal takes as long as a step's launches do, which is a wait between two tokens.
    """
    if not rehearses():
        return model.layers
    first, others, last = model.layers[:1], model.layers[1:-1], model.layers[1:][-1:]
    kinds = {_kind(layer): layer for layer in reversed(others)}
    return [*first, *reversed(kinds.values()), *last]


_OF_ONE_LAYER = ("layer_idx", "largest")
"""Which layer it is, and how large its norms' weights are."""


def _kind(part: object) -> object:
    """Of a layer, or of a part of one: sizes and types of tensors, and all numbers that kernels depend on."""
    if isinstance(part, torch.Tensor):
        return tuple(part.shape), part.dtype
    if is_dataclass(part) and not isinstance(part, ModelSizes):
        return tuple(_kind(getattr(part, field.name)) for field in fields(part) if field.name not in _OF_ONE_LAYER)
    if isinstance(part, tuple):
        return tuple(map(_kind, part))
    return part


class Stream:
    """A residual stream with what was not added to it yet: the sum waits for the norm that reads it next.

    Args:
        sizes: of the model.
        rows: `[num_rows, hidden]`, contiguous, written.
        ranks: whose updates are summed before they are added.
    """

    def __init__(self, sizes: ModelSizes, rows: torch.Tensor, ranks: Ranks = ALONE) -> None:
        self.rows = rows
        self._ranks = ranks
        self._sizes = sizes
        self._update: Update | None = None

    def add(self, update: torch.Tensor, end_norm: Norm | None, beside: torch.Tensor | None = None) -> None:
        """Half a layer, or with `beside` both: to be added by the next `settle`, as the model has it."""
        self._update = Update(update, beside, end_norm, self._sizes.residual_scale)

    def settle(self, norm: Norm | None) -> torch.Tensor:
        """All that waits is added; returns the norm of the stream, or the stream itself."""
        update, self._update = self._update, None
        if update is not None and self._sizes.norm_places == "after sum":
            self.rows = self._ranks.add_norm(self.rows, Update(update.rows), update.norm)
            update = None
        if update is None:
            return add_norm(self.rows, None, norm, overlap=True)
        return self._ranks.add_norm(self.rows, update, norm)

    def select(self, rows: torch.Tensor) -> None:
        """It goes on with some of its rows; `rows` are their numbers, int32."""
        self.rows = self.rows.index_select(0, rows)
        self._update = None if self._update is None else self._update.select(rows)


def through_layers(
    model: ModelTensors,
    hidden: torch.Tensor,
    products: Products,
    attend: Attend,
    wanted: torch.Tensor | None = None,
) -> Stream:
    """All layers.

    Args:
        model: its tensors.
        hidden: `[num_rows, hidden]`, where the residual stream starts; written.
        products: of the layers.
        attend: reads and writes their caches.
        wanted: `[num_wanted]`, int32: rows whose stream is of use to anyone. The last layer has the keys and values
            of all of them, and behind its attention goes on with these; None: with all.

    Returns:
        The stream of `[num_rows or num_wanted, hidden]`.
    """
    stream = Stream(model.sizes, hidden, model.ranks)
    layers = layers_to_run(model)
    if isinstance(products, WarpgroupProducts) and model.sizes.adds_products and model.sizes.residual_scale == 1:
        rows: NormedRows | None = None
        for layer, next_layer in zip_longest(layers, layers[1:]):
            some = wanted if next_layer is None else None
            rows = _add_by_products(layer, next_layer, rows, stream, products, attend, some)
    else:
        for layer in layers:
            _add_layer(layer, stream, products, attend, wanted if layer is layers[-1] else None)
    return stream


def _add_by_products(
    layer: LayerTensors,
    next_layer: LayerTensors | None,
    rows: NormedRows | None,
    stream: Stream,
    products: "WarpgroupProducts",
    attend: Attend,
    wanted: torch.Tensor | None,
) -> NormedRows | None:
    """Both halves of a layer, added to the rows of a stream by the products that end them.

    Args:
        rows: what attention reads, where the layer before has left it.
        wanted: see `through_layers`.

    Returns:
        The same of the next layer, where this one's last product has a part in its norm.
    """
    normed = add_norm(stream.rows, None, layer.attention_norm, overlap=True) if rows is None else rows
    attended = _some(attend(layer, clipped(layer, products.heads(normed, layer))), wanted)
    if wanted is not None:
        stream.select(wanted)
    hidden = stream.rows
    if layer.sizes.parallel:  # of the rows that attention has read
        if layer.mlp_norm is not None:
            rows = add_norm(hidden, None, layer.mlp_norm, overlap=True)
        else:
            assert isinstance(normed, torch.Tensor)  # noqa: S101 - no layer leaves others to such a one
            rows = _some(normed, wanted)
        middle = products.middle(rows, layer.up, layer.sizes)
        products.add(attended, layer.out, hidden)
        products.add(middle, layer.down, hidden)
        return None
    if isinstance(layer.feed, Mixture):
        products.add(attended, layer.out, hidden)
        mix(layer.feed, add_norm(hidden, None, layer.mlp_norm, overlap=True), products, layer.sizes, hidden)
        return None
    ahead = products.rows_of_middle(layer, hidden)
    products.add(attended, layer.out, hidden, ahead)
    rows = add_norm(hidden, None, layer.mlp_norm, overlap=True) if ahead is None else ahead
    middle = products.middle(rows, layer.up, layer.sizes)
    ahead = None if next_layer is None else products.rows_of_heads(layer, next_layer, hidden)
    products.add(middle, layer.down, hidden, ahead)
    return ahead


def _some(rows: torch.Tensor, wanted: torch.Tensor | None) -> torch.Tensor:
    return rows if wanted is None else rows.index_select(0, wanted)


def _add_layer(
    layer: LayerTensors, stream: Stream, products: Products, attend: Attend, wanted: torch.Tensor | None
) -> None:
    parallel = layer.sizes.parallel
    rows = stream.settle(layer.attention_norm)
    attended = products.linear(_some(attend(layer, clipped(layer, products.heads(rows, layer))), wanted), layer.out)
    if wanted is not None:
        stream.select(wanted)
        rows = _some(rows, wanted) if parallel == "one norm" else rows
    if not parallel:
        stream.add(attended, layer.attention_end_norm)
    if parallel != "one norm":  # nothing waits where the halves are parallel
        rows = stream.settle(layer.mlp_norm)
    fed = feed(layer, rows, products)
    stream.add(fed, layer.mlp_end_norm, attended if parallel else None)


def feed(layer: LayerTensors, rows: torch.Tensor, products: Products) -> torch.Tensor:
    """What the second half of a layer makes of normed rows: `[num_rows, hidden]` -> the same shape."""
    if isinstance(layer.feed, Mixture):
        return mix(layer.feed, rows, products, layer.sizes)
    return _through(layer.feed, rows, products, layer.sizes)


def mix(
    mixture: Mixture,
    rows: torch.Tensor,
    products: Products,
    sizes: ModelSizes,
    hidden: torch.Tensor | None = None,
) -> torch.Tensor:
    """The same of a mixture of experts; where the residual stream is given, added to that, which is returned."""
    gate, shared = mixture.shared_gate, mixture.shared
    share = None if shared is None else _through(shared, rows, products, sizes)
    return mix_experts(
        rows,
        products.linear(rows, mixture.router),
        mixture.experts,
        per_token=mixture.per_token,
        renormalised=mixture.renormalised,
        gate=mixture.gate,
        shared=share,
        shared_logits=None if gate is None else products.linear(rows, gate),
        residual=hidden,
        residual_scale=sizes.residual_scale,
        overlap=True,
    )


def _through(fed: FeedForward, rows: torch.Tensor, products: Products, sizes: ModelSizes) -> torch.Tensor:
    return products.linear(products.middle(rows, fed.up, sizes), fed.down)


def clipped(layer: LayerTensors, heads: torch.Tensor) -> torch.Tensor:
    """Queries, keys and values within their bound, if there is one; `heads` are written."""
    clip = layer.sizes.qkv_clip
    return heads if clip is None else heads.clamp_(-clip, clip)


class LibraryProducts:
    """A library multiplies, with biases and some activations in its epilogues."""

    def linear(self, rows: torch.Tensor, product: Product, output: torch.Tensor | None = None) -> torch.Tensor:
        """See `Products`."""
        return product(rows, output)

    def heads(self, rows: torch.Tensor, layer: LayerTensors) -> torch.Tensor:
        """See `Products`."""
        return layer.heads(rows, self.linear)

    def middle(self, rows: torch.Tensor, up: Product, sizes: ModelSizes) -> torch.Tensor:
        """See `Products`."""
        return library_middle(rows, up.weight, up.bias, sizes.activation, paired=sizes.gated)


class WarpgroupProducts:
    """Those of `warpgroup_linear`, with biases, activations and the residual stream in their epilogues."""

    def linear(self, rows: NormedRows, product: Product, output: torch.Tensor | None = None) -> torch.Tensor:
        """See `Products`."""
        return warpgroup_linear(rows, product.weight, bias=product.bias, output=output, overlap=True)

    def heads(self, rows: NormedRows, layer: LayerTensors) -> torch.Tensor:
        """See `Products`."""
        if layer.values is None:
            return self.linear(rows, layer.qkv)
        assert isinstance(rows, torch.Tensor)  # noqa: S101 - `rows_of_heads` is None then
        heads = layer.empty_heads(rows)
        side_by_side(rows, [(product.weight, product.bias) for product in (layer.qkv, layer.values)], heads)
        return heads

    def middle(self, rows: NormedRows, up: Product, sizes: ModelSizes) -> torch.Tensor:
        """See `Products`."""
        if sizes.biased_gates:
            assert isinstance(rows, torch.Tensor)  # noqa: S101 - `rows_of_middle` is None then
            return library_middle(rows, up.weight, up.bias, sizes.activation, paired=True)
        return warpgroup_linear(
            rows, up.weight, bias=up.bias, activation=sizes.activation, paired=sizes.gated, overlap=True
        )

    def add(
        self, rows: torch.Tensor, product: Product, hidden: torch.Tensor, ahead: DeferredRows | None = None
    ) -> None:
        """The product of `[num_rows, in_features]`, added to `hidden` `[num_rows, out_features]`.

        `ahead` is written for the products that read the norm of the sum.
        """
        weight, bias = product.weight, product.bias
        warpgroup_linear(rows, weight, bias=bias, residual=hidden, output=hidden, ahead=ahead, overlap=True)

    def rows_of_middle(self, layer: LayerTensors, hidden: torch.Tensor) -> DeferredRows | None:
        """For the feed-forward's first half, where the way out can leave them."""
        if layer.sizes.biased_gates:
            return None
        norm, gated = layer.mlp_norm, layer.sizes.gated
        return deferred_rows(hidden, norm, layer.out.weight, layer.up.weight, paired=gated)

    def rows_of_heads(
        self, layer: LayerTensors, next_layer: LayerTensors, hidden: torch.Tensor
    ) -> DeferredRows | None:
        """For the next layer's queries, keys and values, where the way down can leave them."""
        if next_layer.values is not None:
            return None
        return deferred_rows(hidden, next_layer.attention_norm, layer.down.weight, next_layer.qkv.weight)

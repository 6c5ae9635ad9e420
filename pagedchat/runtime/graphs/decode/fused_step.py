"""A decode step of a few sequences as a chain of fused kernels: what is captured for small batches."""

import torch

from pagedchat.ops.common.model_sizes import ModelSizes
from pagedchat.ops.products.add_norm import add_norm
from pagedchat.ops.products.finish_logits import finish_logits
from pagedchat.ops.products.model_tensors import LayerTensors, Mixture, ModelTensors, Product
from pagedchat.ops.products.next_token import logits_argmax
from pagedchat.ops.products.qkv_to_cache import qkv_to_cache
from pagedchat.ops.products.small_batch_linear import small_batch_linear
from pagedchat.ops.sampling.decode_state import DecodeState, advance_by_argmax
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.decode.attention import DecodeAttention, options_of
from pagedchat.runtime.graphs.decode.screened_end import ScreenedEnd
from pagedchat.runtime.graphs.layer_chain import clipped, layers_to_run, mix, through_layers


class FusedStep:
    """A chain of launches, five a layer, each of which begins while the one before still runs.

    There are six where queries and keys are normed or bounded, or the cache is of bytes: in the kernel that makes
    them no thread block has a whole head. Where norms stand behind the halves of a layer, there are seven or eight:
    adding is a launch of its own then. Values whose weights have another form have one as well. A mixture of
    experts has six in the place of two: norm, router, routes, both products, and their sum.

    Args:
        model: its tensors.
        backend: has the cache.
        attention: its rows.
        state: the same rows.
        end: without logits, where there are to be none.
    """

    def __init__(
        self,
        model: ModelTensors,
        backend: CudaAttention,
        attention: DecodeAttention,
        state: DecodeState,
        end: ScreenedEnd | None = None,
    ) -> None:
        self._model = model
        self._backend = backend
        self._attention = attention
        self._state = state
        self._end = end
        self._products = FewRowsProducts()
        self._best = torch.zeros(len(state.token_ids), dtype=torch.int64, device=state.token_ids.device)

    def __call__(self) -> torch.Tensor:
        """See `Step`."""
        model, state = self._model, self._state
        rows, norm = model.embed(state.token_ids, state.positions), model.norm
        if model.sizes.adds_products:
            for layer in layers_to_run(model):
                self._add_layer(layer, rows)
        else:
            stream = through_layers(model, rows, self._products, self._attention.write_and_read)
            rows, norm = stream.settle(model.norm), None
        if self._end is not None:
            return self._end(rows, norm)
        if not model.sizes.plain_head:
            return self._finished_logits(add_norm(rows, None, norm, overlap=True))
        logits = rows.new_empty(len(rows), len(model.head))
        logits_argmax(state, logits, rows, model.head, norm=norm, best=self._best, overlap=True)
        return logits

    def _add_layer(self, layer: LayerTensors, hidden: torch.Tensor) -> None:
        """Both halves of a layer, added to `hidden` `[num_seqs, width]`."""
        attended = self._attended(layer, hidden)
        if isinstance(layer.feed, Mixture):
            _add_product(layer, layer.out, attended, hidden)
            mix(
                layer.feed,
                add_norm(hidden, None, layer.mlp_norm, overlap=True),
                self._products,
                layer.sizes,
                hidden,
            )
            return
        middle = (
            self._middle(layer, hidden) if layer.sizes.parallel else None
        )  # of the rows that attention has read
        _add_product(layer, layer.out, attended, hidden)
        if middle is None:
            middle = self._middle(layer, hidden)
        _add_product(layer, layer.down, middle, hidden)

    def _attended(self, layer: LayerTensors, hidden: torch.Tensor) -> torch.Tensor:
        """What the way out multiplies, `[num_seqs, num_heads * head_dim]`."""
        sizes, qkv, values = layer.sizes, layer.qkv, layer.values
        # The scale of a cache of bytes follows from a whole head.
        if sizes.heads_apart or self._backend.shape.kind is not None:
            return self._attention.write_and_read(layer, clipped(layer, _heads(layer, hidden)))
        query = hidden.new_empty(len(hidden), sizes.num_heads, sizes.head_dim)
        qkv_to_cache(
            query,
            *self._backend.layer_cache(layer.layer_idx),
            hidden,
            qkv.weight,
            self._state.block_tables,
            self._state.positions,
            bias=qkv.bias,
            values=None if values is None else values.weight,
            values_bias=None if values is None else values.bias,
            norm=layer.attention_norm,
            rotations=layer.rotations,
            overlap=True,
        )
        return self._attention.read(layer.layer_idx, query, options_of(layer), overlap=True).flatten(1)

    def _middle(self, layer: LayerTensors, hidden: torch.Tensor) -> torch.Tensor:
        """The first half of a feed-forward, from its norm on: `[num_seqs, width]` -> `[num_seqs, middle]`."""
        sizes, up = layer.sizes, layer.up
        return small_batch_linear(
            hidden,
            up.weight,
            bias=up.bias,
            norm=layer.attention_norm if layer.mlp_norm is None else layer.mlp_norm,
            activation=sizes.activation,
            paired=sizes.gated,
            overlap=True,
        )

    def _finished_logits(self, rows: torch.Tensor) -> torch.Tensor:
        """Of normed rows, with all that a model does to logits; the state moves on."""
        model, narrower = self._model, self._model.project_out
        if narrower is not None:
            rows = self._products.linear(rows, Product(narrower))
        logits = model.of_all_ranks(self._products.linear(rows, Product(model.head, model.head_bias)))
        finish_logits(logits, scale=model.logits_scale, cap=model.logits_cap, overlap=True)
        advance_by_argmax(self._state, logits, overlap=True)
        return logits


def _heads(layer: LayerTensors, hidden: torch.Tensor) -> torch.Tensor:
    """Queries, keys and values, `[num_seqs, qkv_rows]`, from the norm on."""

    def multiply(rows: torch.Tensor, product: Product, output: torch.Tensor | None) -> torch.Tensor:
        norm = layer.attention_norm
        return small_batch_linear(rows, product.weight, bias=product.bias, norm=norm, output=output, overlap=True)

    return layer.heads(hidden, multiply)


def _add_product(layer: LayerTensors, product: Product, rows: torch.Tensor, hidden: torch.Tensor) -> None:
    small_batch_linear(
        rows,
        product.weight,
        bias=product.bias,
        residual=hidden,
        residual_scale=layer.sizes.residual_scale,
        output=hidden,
        overlap=True,
    )


class FewRowsProducts:
    """Those of `small_batch_linear`, as `layer_chain.Products`."""

    def linear(self, rows: torch.Tensor, product: Product, output: torch.Tensor | None = None) -> torch.Tensor:
        """See `Products`."""
        return small_batch_linear(rows, product.weight, bias=product.bias, output=output, overlap=True)

    def heads(self, rows: torch.Tensor, layer: LayerTensors) -> torch.Tensor:
        """See `Products`."""
        return layer.heads(rows, self.linear)

    def middle(self, rows: torch.Tensor, up: Product, sizes: ModelSizes) -> torch.Tensor:
        """See `Products`."""
        activation, paired = sizes.activation, sizes.gated
        return small_batch_linear(rows, up.weight, bias=up.bias, activation=activation, paired=paired, overlap=True)

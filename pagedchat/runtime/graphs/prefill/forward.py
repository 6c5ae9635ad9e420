"""Hidden rows of a chunk's tokens -> logits of the tokens that are asked for. Knows no buffers and no cache.

Through the model's own modules, or, where its tensors are known, with fewer launches: sums and the norms after
them are one, and so are products and what follows them.
"""

from collections.abc import Callable
from functools import partial

import torch

from pagedchat.ops.products.many_rows_plan import MOST_OF_FEW_BITS
from pagedchat.ops.products.model_tensors import LayerTensors, Mixture, ModelTensors
from pagedchat.ops.quantized.weight import QuantizedWeight
from pagedchat.runtime.graphs.foreign_model import StepModel
from pagedchat.runtime.graphs.layer_chain import LibraryProducts, Products, WarpgroupProducts, through_layers
from pagedchat.runtime.graphs.prefill.attention import PrefillAttention
from pagedchat.runtime.graphs.which_step import rows_of_last_layer

Forward = Callable[[torch.Tensor, torch.Tensor, PrefillAttention, torch.Tensor, torch.Tensor], None]
"""Takes token ids and positions, `[num_tokens]`, the attention, the rows asked for, `[num_rows]`, all int32, and
where their logits go, `[num_rows, vocab_size]`."""


class ModuleForward:
    """What any model does.

    Args:
        model: the model.
    """

    def __init__(self, model: StepModel) -> None:
        self._model = model

    def __call__(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        attention: PrefillAttention,
        rows: torch.Tensor,
        logits: torch.Tensor,
    ) -> None:
        """See `Forward`."""
        logits.copy_(self._model(token_ids, positions, attention, rows))


class MergedForward:
    """Of a model whose tensors are known.

    Args:
        model: its tensors.
        num_tokens: of the chunks, padding included.
        by_warpgroups: the GPU multiplies its type by warpgroups.
    """

    def __init__(self, model: ModelTensors, num_tokens: int, *, by_warpgroups: bool) -> None:
        self._model = model
        are_too_many = num_tokens > MOST_OF_FEW_BITS and _has_few_bits(model)
        ours = by_warpgroups and not _is_biased(model) and not are_too_many
        self._products: Products = WarpgroupProducts() if ours else LibraryProducts()

    def __call__(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        attention: PrefillAttention,
        rows: torch.Tensor,
        logits: torch.Tensor,
    ) -> None:
        """See `Forward`."""
        model = self._model
        if model.sizes.changes_heads:
            attention.prepare_changing()
        hidden = model.embed(token_ids, positions)
        are_few = rows_of_last_layer(len(hidden), len(rows)) < len(hidden)
        attend = partial(_attend, attention)
        stream = through_layers(model, hidden, self._products, attend, rows if are_few else None)
        if not are_few:
            stream.select(rows)
        model.logits(stream.settle(model.norm), logits)


def _is_biased(model: ModelTensors) -> bool:
    """Whether the products that a layer adds to its residual stream have biases: a library has no room for one in
    an epilogue that adds.
    """
    ends = [layer.out for layer in model.layers]
    ends += [layer.down for layer in model.layers if not isinstance(layer.feed, Mixture)]
    return any(product.bias is not None for product in ends)


def _has_few_bits(model: ModelTensors) -> bool:
    """Whether products are of few bits: where tokens are many a library multiplies, and what follows is apart."""
    products = (each for layer in model.layers for each in layer.products)
    return any(isinstance(each.weight, QuantizedWeight) for each in products)


def _attend(paged: PrefillAttention, layer: LayerTensors, heads: torch.Tensor) -> torch.Tensor:
    """See `layer_chain.Attend`."""
    sizes, layer_idx = layer.sizes, layer.layer_idx
    by_token = heads.view(len(heads), -1, sizes.head_dim)
    if layer.changes_heads:
        query = key = value = paged.change_and_write(layer, by_token)
    else:
        parts = [sizes.num_heads, sizes.num_kv_heads, sizes.num_kv_heads]
        query, key, value = torch.split(by_token, parts, dim=1)
        paged.write(layer_idx, key, value)
    attended = paged.attend(
        layer_idx,
        query,
        key,
        value,
        scale=sizes.scale,
        sliding_window=layer.sliding_window,
        cap=sizes.score_cap,
        alibi_slopes=layer.alibi_slopes,
        sinks=layer.sinks,
    )
    return attended.flatten(1)

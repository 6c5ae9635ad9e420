"""Hidden rows of a chunk's tokens -> logits of the tokens that are asked for. Knows no buffers and no cache.

Through the model's own modules, or, where it is of the plain kind, with fewer launches: sums and the norms after
them are one, and so are products and what follows them.
"""

from collections.abc import Callable

import torch
from torch.nn import functional

from pagedchat.models.native_model import NativeModel
from pagedchat.ops.products.add_norm import add_norm
from pagedchat.ops.products.model_tensors import LayerTensors, ModelTensors
from pagedchat.ops.products.silu_and_mul import silu_and_mul
from pagedchat.runtime.graphs.prefill.attention import PrefillAttention

Forward = Callable[[torch.Tensor, torch.Tensor, PrefillAttention, torch.Tensor, torch.Tensor], None]
"""Takes token ids and positions, `[num_tokens]`, the attention, the rows asked for, `[num_rows]`, all int32, and
where their logits go, `[num_rows, vocab_size]`."""


class ModuleForward:
    """What any native model does.

    Args:
        model: the model.
    """

    def __init__(self, model: NativeModel) -> None:
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
    """Of a model with one residual stream and a norm before each half.

    Args:
        model: its tensors.
    """

    def __init__(self, model: ModelTensors) -> None:
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
        model = self._model
        if model.sizes.changes_heads:
            attention.prepare_changing()
        hidden = model.embed(token_ids, positions)
        update = None
        for layer in model.layers:
            normed = add_norm(hidden, update, layer.attention_norm, overlap=True)
            update = _attend(layer, normed, attention, model.rotations)
            update = _feed_forward(layer, add_norm(hidden, update, layer.mlp_norm, overlap=True))
        wanted = hidden.index_select(0, rows)
        rest = None if update is None else update.index_select(0, rows)
        torch.mm(add_norm(wanted, rest, model.norm), model.head.T, out=logits)


def _attend(
    layer: LayerTensors, rows: torch.Tensor, paged: PrefillAttention, rotations: torch.Tensor | None
) -> torch.Tensor:
    """The first half of a layer: `[num_tokens, width]` -> the same shape."""
    sizes, layer_idx = layer.sizes, layer.layer_idx
    heads = layer.qkv(rows).view(len(rows), -1, sizes.head_dim)
    if not sizes.changes_heads:
        query, key, value = torch.split(heads, [sizes.num_heads, sizes.num_kv_heads, sizes.num_kv_heads], dim=1)
        paged.write(layer_idx, key, value)
    else:
        query = key = value = paged.change_and_write(layer, heads, rotations)
    window = layer.sliding_window
    attended = paged.attend(layer_idx, query, key, value, scale=sizes.scale, sliding_window=window, cap=None)
    return layer.out(attended.flatten(1))


def _feed_forward(layer: LayerTensors, rows: torch.Tensor) -> torch.Tensor:
    """The second half."""
    up = layer.up
    if layer.sizes.gated:
        middle = silu_and_mul(up(rows), overlap=True)
    elif up.bias is None:
        middle = functional.relu(up(rows))
    else:  # with the activation in the product's epilogue
        middle = torch._addmm_activation(up.bias, rows, up.weight.T)
    return layer.down(middle)

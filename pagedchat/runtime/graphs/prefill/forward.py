"""Hidden rows of a chunk's tokens -> logits of the tokens that are asked for. Knows no buffers and no cache.

Through the model's own modules, or, where it is of the plain kind, with fewer launches: sums and the norms after
them are one, and so are products and what follows them.
"""

from collections.abc import Callable

import torch
from torch.nn import functional

from pagedchat.models.native_model import NativeModel
from pagedchat.ops.products.add_norm import add_norm
from pagedchat.ops.products.silu_and_mul import silu_and_mul
from pagedchat.runtime.graphs.prefill.attention import PrefillAttention
from pagedchat.runtime.graphs.weights import FusedLayer, FusedModel, fused_model

Forward = Callable[[torch.Tensor, torch.Tensor, PrefillAttention, torch.Tensor, torch.Tensor], None]
"""Takes token ids and positions, `[num_tokens]`, the attention, the rows asked for, `[num_rows]`, all int32, and
where their logits go, `[num_rows, vocab_size]`."""


def forward_of(model: NativeModel, model_len: int) -> Forward:
    """The forward pass of a model with the fewest launches.

    Args:
        model: any native one.
        model_len: tokens of a sequence, at most.
    """
    modules = ModuleForward(model)
    merged = fused_model(model, model_len)
    return modules if merged is None else MergedForward(merged, modules)


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
        modules: serves passes whose heads cannot be turned and written at once.
    """

    def __init__(self, model: FusedModel, modules: Forward) -> None:
        self._model = model
        self._modules = modules

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
        if model.rotations is not None and not attention.prepare_turning():
            return self._modules(token_ids, positions, attention, rows, logits)
        hidden = model.embed(token_ids, positions)
        update = None
        for layer in model.layers:
            normed = add_norm(hidden, update, layer.attention_norm, overlap=True)
            update = _attend(layer, normed, attention, model.rotations)
            update = _feed_forward(layer, add_norm(hidden, update, layer.mlp_norm, overlap=True))
        wanted = hidden.index_select(0, rows)
        rest = None if update is None else update.index_select(0, rows)
        torch.mm(add_norm(wanted, rest, model.norm), model.head.T, out=logits)
        return None


def _attend(
    layer: FusedLayer, rows: torch.Tensor, paged: PrefillAttention, rotations: torch.Tensor | None
) -> torch.Tensor:
    """The first half of a layer: `[num_tokens, width]` -> the same shape."""
    attention = layer.attention
    update: torch.Tensor
    if rotations is None:
        update = attention(rows, paged)
        return update
    heads = attention.qkv(rows).view(len(rows), -1, attention.heads.head_dim)
    query = paged.turn_and_write(attention.layer_idx, heads, rotations)
    attended = paged.attend(
        attention.layer_idx,
        query,
        query,
        query,
        scale=attention.scale,
        sliding_window=attention.sliding_window,
        cap=None,
    )
    update = attention.out(attended.flatten(1))
    return update


def _feed_forward(layer: FusedLayer, rows: torch.Tensor) -> torch.Tensor:
    """The second half."""
    up = layer.up
    if layer.paired:
        middle = silu_and_mul(up(rows), overlap=True)
    elif up.bias is None:
        middle = functional.relu(functional.linear(rows, up.weight))
    else:  # with the activation in the product's epilogue
        middle = torch._addmm_activation(up.bias, rows, up.weight.T)
    update: torch.Tensor = layer.down(middle)
    return update

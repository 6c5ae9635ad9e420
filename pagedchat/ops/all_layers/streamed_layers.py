"""All layers of a decode step of a few sequences in one launch that streams their weights; see
kernels/all_layers/streamed_layers.cu.

Elsewhere than on a GPU the same runs as a chain of the ops that do its parts.
"""

from itertools import chain
from struct import Struct
from typing import Any

import torch

from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.ops.all_layers.plan import SETS, LayersPlan, shares_of
from pagedchat.ops.all_layers.shape import MAX_LAYERS, LayersShape
from pagedchat.ops.attention.call import AttentionCall, AttentionOptions
from pagedchat.ops.attention.decode_split import decode_split
from pagedchat.ops.cache.heads_to_cache import heads_to_cache
from pagedchat.ops.common.checks import check_same_type, check_shape
from pagedchat.ops.common.choices import ACTIVATIONS
from pagedchat.ops.common.launch import address, element_name, on_cuda, stream_of
from pagedchat.ops.products.model_tensors import LayerTensors, ModelTensors, Product
from pagedchat.ops.products.small_batch_launch import digits_of
from pagedchat.ops.products.small_batch_linear import small_batch_linear
from pagedchat.ops.quantized.weight import QuantizedWeight, Weight, form_of
from pagedchat.ops.quantized.weight_form import WeightForm
from pagedchat.ops.sampling.decode_state import DecodeState

NAME = "streamed_layers"
_AHEAD_BYTES = 20 << 20
"""Of the vocabulary, on their way when the last layer is computed: what comes in the microseconds until the launch
behind asks for it itself."""
_UNITS = Struct("<ff")
LayerCache = tuple[torch.Tensor, torch.Tensor]
"""Keys `[num_blocks, num_kv_heads, head_size / 8, block_size, 8]` and values `[num_blocks, num_kv_heads, head_size,
block_size]` of a layer; both may be strided by block, in all layers alike."""


class StreamedLayers:
    """The layers for a number of sequences, with the memory their thread blocks talk through.

    Args:
        model: up to `MAX_LAYERS` layers, of one 16-bit type but for weights of few bits: RMS norms of one kind
            before both halves, heads that all turn by the same angles or none, gates, no windows, no biases but
            those of the first product. Of norms with weights of 16 bits behind them the largest element is known.
        caches: of each layer.
        plan: of `plan_layers`.

    Raises:
        ValueError: more layers.
    """

    def __init__(self, model: ModelTensors, caches: list[LayerCache], plan: LayersPlan) -> None:
        if len(model.layers) > MAX_LAYERS:
            raise ValueError(f"model has {len(model.layers)} layers, expected at most {MAX_LAYERS}")
        self._model = model
        self._caches = caches
        self._plan = plan
        _, values = caches[0]
        self._shape = LayersShape.of(model.sizes, values.shape[-1], **_forms(model.layers[0]))
        device = values.device
        rows = [
            _addresses(layer, cache) + _units(layer, self._shape)
            for layer, cache in zip(model.layers, caches, strict=True)
        ]
        self._layers = torch.tensor(list(chain.from_iterable(rows)), dtype=torch.int64, device=device)
        shares = shares_of(self._shape, plan.num_thread_blocks)
        self._shares = torch.tensor(shares, dtype=torch.int32, device=device)
        places = torch.full((plan.set_elements(self._shape),), -1, dtype=torch.int16)
        for begin, end in plan.empty_runs(self._shape):
            places[begin:end] = 0
        self._sets = places.repeat(SETS, 1).to(device)
        self._layers_done = torch.zeros(1, dtype=torch.int32, device=device)

    def __call__(self, hidden: torch.Tensor, state: DecodeState) -> None:
        """All layers, added to `hidden`.

        Args:
            hidden: `[num_tokens, hidden]`, as many rows as the plan has; read and written.
            state: the same rows. Their contexts lie in the cache up to each row's position, whose keys and values
                are written.

        Raises:
            ValueError: shapes or types that do not go together.
        """
        model, plan = self._model, self._plan
        state.check()
        check_shape("hidden", hidden, plan.num_tokens, model.sizes.hidden)
        check_shape("token_ids", state.token_ids, plan.num_tokens)
        check_same_type("hidden", hidden, model.layers[0].norms_before[0].weight)
        if not on_cuda(hidden):
            for layer, cache in zip(model.layers, self._caches, strict=True):
                _add_layer(layer, cache, state, hidden)
            return
        keys, values = self._caches[0]
        layer = model.layers[0]
        norm, heads = layer.norms_before[0], layer.head_norms
        args = (
            hidden.data_ptr(),
            self._sets.data_ptr(),
            self._layers_done.data_ptr(),
            self._layers.data_ptr(),
            self._shares.data_ptr(),
            state.positions.data_ptr(),
            state.block_tables.data_ptr(),
            address(layer.rotations),
            i32(len(model.layers)),
            i32(state.block_tables.shape[1]),
            i32(keys.stride(0)),
            i32(values.stride(0)),
            f32(model.sizes.scale),
            f32(norm.eps),
            f32(0.0 if heads is None else heads.query.eps),
            *_beginning(model.head),
        )
        kernel = get_kernel(NAME, hidden.device.index, **self._constants(hidden.dtype))
        shared = plan.shared_bytes(self._shape)
        kernel.allow_shared(shared)
        kernel.launch(
            plan.num_thread_blocks,
            plan.num_threads,
            args,
            stream=stream_of(hidden),
            shared_bytes=shared,
            cooperative=True,
        )

    def _constants(self, dtype: torch.dtype) -> dict[str, Any]:
        layer = self._model.layers[0]
        heads = layer.head_norms
        return {
            "ELEMENT": element_name(dtype),
            "NORM": layer.norms_before[0].constant,
            "HEAD_NORM": 0 if heads is None else heads.query.constant,
            "ROTARY": int(layer.rotations is not None),
            "ACTIVATION": ACTIVATIONS[self._model.sizes.activation],
            **self._shape.constants,
            **self._plan.constants,
        }


def _forms(layer: LayerTensors) -> dict[str, WeightForm]:
    forms = {"form": form_of(layer.out.weight), "qkv_form": form_of(layer.qkv.weight)}
    return forms if layer.values is None else {**forms, "values_form": form_of(layer.values.weight)}


def _beginning(head: Weight) -> tuple[int, i32]:
    """Of the vocabulary, which the next launch reads from its first row on, as far as it is brought on its way."""
    where, size = digits_of(head), head.digits if isinstance(head, QuantizedWeight) else head
    num_bytes = min(_AHEAD_BYTES, size.numel() * size.element_size()) // 16 * 16
    return (where, i32(num_bytes)) if where % 16 == 0 else (0, i32(0))


def is_aligned(model: ModelTensors, caches: list[LayerCache]) -> bool:
    """Whether all that the kernel copies starts at 16 bytes; arguments as of `StreamedLayers`."""
    layers = zip(model.layers, caches, strict=True)
    return all(number % 16 == 0 for layer, cache in layers for number in _addresses(layer, cache))


def _addresses(layer: LayerTensors, cache: LayerCache) -> list[int]:
    first, second = layer.norms_before
    heads = layer.head_norms
    biases = [product.bias for product in (layer.qkv, layer.values) if product is not None]
    weights = [product.weight for product in layer.products]
    few = [weight for weight in weights if isinstance(weight, QuantizedWeight)]
    before = [address(first.weight), address(second.weight), *map(digits_of, weights)]
    tensors = (
        *biases, None if heads is None else heads.query.weight, None if heads is None else heads.key.weight,
        *cache, *(weight.scales for weight in few), *(weight.minimums for weight in few),
    )  # fmt: skip
    return before + [address(tensor) for tensor in tensors]


def _units(layer: LayerTensors, shape: LayersShape) -> list[int]:
    """Of rows that either norm weighs, a word of 64 bits; of few bits none are."""
    if shape.form.few:
        return []
    return [int.from_bytes(_UNITS.pack(*(norm.unit for norm in layer.norms_before)), "little")]


def _add_layer(layer: LayerTensors, cache: LayerCache, state: DecodeState, hidden: torch.Tensor) -> None:
    """Both halves of a layer, added to `hidden` `[num_tokens, hidden]`."""
    sizes = layer.sizes
    first, second = layer.norms_before

    def multiply(rows: torch.Tensor, product: Product, output: torch.Tensor | None) -> torch.Tensor:
        return small_batch_linear(rows, product.weight, bias=product.bias, norm=first, output=output)

    heads = layer.heads(hidden, multiply).view(len(hidden), -1, sizes.head_dim)
    places = (state.block_tables, state.positions)
    query = heads_to_cache(heads, *cache, *places, norms=layer.head_norms, rotations=layer.rotations)
    longest = state.block_tables.shape[1] * cache[1].shape[-1]
    options = AttentionOptions(scale=sizes.scale)
    call = AttentionCall.to_new(query, *cache, state.block_tables, state.seq_lens, options)
    attended = decode_split(call, max_seq_len=longest).flatten(1)
    small_batch_linear(attended, layer.out.weight, residual=hidden, output=hidden)
    middle = small_batch_linear(hidden, layer.up.weight, norm=second, activation=sizes.activation, paired=True)
    small_batch_linear(middle, layer.down.weight, residual=hidden, output=hidden)

"""A decode step of a few sequences as one launch: what is captured for the smallest batches of a small model."""

from collections.abc import Callable, Iterator

import torch

from pagedchat.jit.driver import gpu
from pagedchat.ops.common.launch import can_overlap
from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.ops.whole_step.model import PersistentLayer, PersistentModel
from pagedchat.ops.whole_step.persistent_decode import PersistentDecode
from pagedchat.ops.whole_step.plan import (
    CLUSTER_TURN,
    MAX_LAYERS,
    ONE_TURN,
    PersistentPlan,
    PersistentShape,
    plan_clustered,
    plan_persistent,
)
from pagedchat.ops.whole_step.screened_head import ScreenedHead
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.weights import FusedLayer, FusedModel

Mirror = Callable[[], ScreenedHead]
"""Makes the mirror of a model's head, or has it."""


class PersistentStep:
    """See `ops.persistent_decode`.

    Args:
        decode: for as many sequences as the state has rows.
        state: the rows.
        num_logits: of a row; 0 for a step that makes none.
        dtype: of the model.
    """

    def __init__(self, decode: PersistentDecode, state: DecodeState, num_logits: int, dtype: torch.dtype) -> None:
        self._decode = decode
        self._state = state
        self._num_logits, self._dtype = num_logits, dtype

    def __call__(self) -> torch.Tensor:
        """See `steps.Step`."""
        tokens = self._state.token_ids
        logits = torch.empty(len(tokens), self._num_logits, dtype=self._dtype, device=tokens.device)
        self._decode(self._state, logits if self._num_logits else None)
        return logits


def persistent_step(
    model: FusedModel, backend: CudaAttention, state: DecodeState, context_len: int, mirror: Mirror | None = None
) -> PersistentStep | None:
    """The step; None where the model or the batch is not one for it.

    Args:
        model: on a GPU, of a 16-bit type.
        backend: has the cache.
        state: the rows.
        context_len: no row is longer.
        mirror: for a step that makes no logits; it is asked for if there is room for such a step.
    """
    shape = _shape(model, backend)
    if shape is None or not model.head.is_cuda or not can_overlap(model.head.device):
        return None  # bulk copies are there where launches overlap, from sm_90 on
    tensors = _model(model, backend, shape)
    if not tensors.is_aligned:
        return None
    num_seqs, vocab_size = len(state.token_ids), len(model.head)
    for plan in _plans(shape, num_seqs, context_len, model.head.device.index, vocab_size, mirror is not None):
        decode = PersistentDecode(tensors, num_seqs, plan, None if mirror is None else mirror())
        if decode.fits_at_once():
            return PersistentStep(decode, state, vocab_size if mirror is None else 0, model.head.dtype)
    return None


def one_turn_len(model: FusedModel | None, backend: CudaAttention, num_seqs: int) -> int:
    """The longest context that so few sequences attend to in one turn of a launch's thread blocks.

    Args:
        model: None for one that has no such launch.
        backend: has the cache.
        num_seqs: 1 to `MAX_TOKENS`.
    """
    shape = None if model is None or not model.head.is_cuda else _shape(model, backend)
    if shape is None or model is None:
        return ONE_TURN
    facts = gpu(model.head.device.index)
    plan = plan_clustered(shape, num_seqs, CLUSTER_TURN, facts.num_multiprocessors, facts.shared_bytes)
    return ONE_TURN if plan is None else CLUSTER_TURN


def _plans(
    shape: PersistentShape, num_seqs: int, context_len: int, device_index: int, vocab_size: int, screened: bool
) -> Iterator[PersistentPlan]:
    """The quickest first."""
    facts = gpu(device_index)
    for make in (plan_clustered, plan_persistent):
        plan = make(shape, num_seqs, context_len, facts.num_multiprocessors, facts.shared_bytes)
        if plan is not None and screened:
            plan = plan.screened(shape, num_seqs, vocab_size, facts.shared_bytes)
        if plan is not None:
            yield plan


def _shape(model: FusedModel, backend: CudaAttention) -> PersistentShape | None:
    """None where layers differ in what the kernel takes to be one for all, or have what it has no code for."""
    first = model.layers[0]
    heads = first.attention.heads
    if len(model.layers) > MAX_LAYERS or any(_differs(layer, model) for layer in model.layers):
        return None
    return PersistentShape(
        hidden=model.token_vectors.shape[1],
        middle=first.down.in_features,
        num_heads=heads.num_heads,
        num_kv_heads=heads.num_kv_heads,
        head_size=heads.head_dim,
        block_size=backend.shape.block_size,
        gated=first.paired,
    )


def _differs(layer: FusedLayer, model: FusedModel) -> bool:
    norms = (layer.attention_norm, layer.mlp_norm)
    return (
        layer.attention.sliding_window is not None
        or layer.attention.scale != model.layers[0].attention.scale
        or layer.activation != ("silu" if layer.paired else "relu")
        or any((norm.kind, norm.eps) != (model.norm.kind, model.norm.eps) for norm in norms)
    )


def _model(model: FusedModel, backend: CudaAttention, shape: PersistentShape) -> PersistentModel:
    return PersistentModel(
        shape=shape,
        token_vectors=model.token_vectors,
        position_vectors=model.position_vectors,
        position_offset=model.position_offset,
        rotations=model.rotations,
        layers=[_layer(layer, backend) for layer in model.layers],
        norm=model.norm,
        head=model.head,
        scale=model.layers[0].attention.scale,
    )


def _layer(layer: FusedLayer, backend: CudaAttention) -> PersistentLayer:
    attention = layer.attention
    key_cache, value_cache = backend.layer_cache(attention.layer_idx)
    return PersistentLayer(
        attention_norm=layer.attention_norm,
        qkv=attention.qkv.weight,
        qkv_bias=attention.qkv.bias,
        out=attention.out.weight,
        out_bias=attention.out.bias,
        mlp_norm=layer.mlp_norm,
        up=layer.up.weight,
        up_bias=layer.up.bias,
        down=layer.down.weight,
        down_bias=layer.down.bias,
        key_cache=key_cache,
        value_cache=value_cache,
    )

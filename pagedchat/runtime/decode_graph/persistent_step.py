"""A decode step of a few sequences as one launch: what is captured for the smallest batches of a small model."""

import torch

from pagedchat.jit.driver import gpu
from pagedchat.ops.cuda_launch import can_overlap
from pagedchat.ops.decode_state import DecodeState
from pagedchat.ops.persistent_decode import PersistentDecode
from pagedchat.ops.persistent_model import PersistentLayer, PersistentModel
from pagedchat.ops.persistent_plan import MAX_LAYERS, PersistentShape, plan_persistent
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.decode_graph.weights import FusedLayer, FusedModel


class PersistentStep:
    """See `ops.persistent_decode`.

    Args:
        decode: for as many sequences as the state has rows.
        state: the rows.
        vocab_size: of the model.
        dtype: of the model.
    """

    def __init__(self, decode: PersistentDecode, state: DecodeState, vocab_size: int, dtype: torch.dtype) -> None:
        self._decode = decode
        self._state = state
        self._vocab_size, self._dtype = vocab_size, dtype

    def __call__(self) -> torch.Tensor:
        """See `steps.Step`."""
        tokens = self._state.token_ids
        logits = torch.empty(len(tokens), self._vocab_size, dtype=self._dtype, device=tokens.device)
        self._decode(self._state, logits)
        return logits


def persistent_step(
    model: FusedModel, backend: CudaAttention, state: DecodeState, context_len: int
) -> PersistentStep | None:
    """The step; None where the model or the batch is not one for it.

    Args:
        model: on a GPU, of a 16-bit type.
        backend: has the cache.
        state: the rows.
        context_len: no row is longer.
    """
    shape = _shape(model, backend)
    if shape is None or not model.head.is_cuda or not can_overlap(model.head.device):
        return None  # bulk copies are there where launches overlap, from sm_90 on
    facts = gpu(model.head.device.index)
    limits = facts.num_multiprocessors, facts.shared_bytes
    plan = plan_persistent(shape, len(state.token_ids), context_len, *limits)
    if plan is None:
        return None
    tensors = _model(model, backend, shape)
    if not tensors.is_aligned:
        return None
    decode = PersistentDecode(tensors, len(state.token_ids), plan)
    return PersistentStep(decode, state, len(model.head), model.head.dtype)


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

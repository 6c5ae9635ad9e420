"""What fast steps need of a model, whatever its family: its sizes and its tensors.

Knows the decoder of `models`; what the kernels have against one is in `objections`.
"""

from weakref import WeakKeyDictionary

import torch

from pagedchat.jit.driver import gpu
from pagedchat.layers.attention import Attention
from pagedchat.layers.experts import SparseMlp
from pagedchat.layers.linear import Linear
from pagedchat.layers.mlp import GatedMlp
from pagedchat.layers.norms import Norm as NormModule
from pagedchat.layers.rotary import RotaryEmbedding
from pagedchat.models.decoder import Decoder
from pagedchat.models.decoder_layer import DecoderLayer
from pagedchat.models.native import NativeConfig
from pagedchat.models.native_model import NativeModel
from pagedchat.ops.common.launch import element_name
from pagedchat.ops.common.model_sizes import MixtureSizes, ModelSizes
from pagedchat.ops.common.norm import HeadNorms, Norm
from pagedchat.ops.products.model_tensors import LayerTensors, ModelTensors, Product
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.objections import objection_to
from pagedchat.runtime.graphs.step_facts import Setting

# --- from a config, without tensors -------------------------------------------------------------------


def sizes_of(config: NativeConfig) -> ModelSizes:
    """How large a model is."""
    mixture = config.mixture
    return ModelSizes(
        num_layers=config.num_layers,
        hidden=config.hidden_size,
        middle=config.ffn_size,
        num_heads=config.heads.num_heads,
        num_kv_heads=config.heads.num_kv_heads,
        head_dim=config.heads.head_dim,
        vocab_size=config.vocab_size,
        norm=config.norm.kind,
        gated=config.gated,
        rotary=config.rotary is not None,
        normed_heads=config.qk_norm is not None,
        biased_gates=config.gated and config.mlp_bias,
        num_windowed=sum(window is not None for window in config.windows),
        capped=config.score_cap is not None,
        sloped=config.alibi is not None,
        mixture=None if mixture is None else MixtureSizes(mixture.num_experts, mixture.per_token, mixture.width),
    )


# --- from the modules ---------------------------------------------------------------------------------

_found: WeakKeyDictionary[NativeModel, dict[int, ModelTensors | None]] = WeakKeyDictionary()
"""What was found of models that are still there, by `model_len`."""


def setting_of(model: NativeModel, backend: CudaAttention, *, is_aligned: bool = True) -> Setting:
    """What all steps of a model have in common, for `which_step`.

    Args:
        model: what is to run.
        backend: has the cache.
        is_aligned: whether all tensors start at 16 bytes.
    """
    config, device = _config(model), backend.device
    return Setting(
        sizes=sizes_of(config),
        objection=objection_to(config),
        element=element_name(backend.shape.dtype),
        block_size=backend.shape.block_size,
        gpu=gpu(device.index) if device.type == "cuda" else None,
        is_aligned=is_aligned,
    )


def tensors_of(model: NativeModel, model_len: int) -> ModelTensors | None:
    """The tensors of a model, those that it has itself; None if the kernels have something against it.

    Args:
        model: of a family that is known here.
        model_len: tokens of a sequence, at most.
    """
    found = _found.setdefault(model, {})  # decodes and prompts ask for the same, and the rotations are large
    if model_len not in found:
        found[model_len] = _find(model, model_len)
    return found[model_len]


def _config(model: NativeModel) -> NativeConfig:
    """What it was built from."""
    return _decoder(model).config


def _decoder(model: NativeModel) -> Decoder:
    if isinstance(model, Decoder):
        return model
    raise TypeError(f"{type(model).__name__} is no model whose sizes are known")


def _find(native: NativeModel, model_len: int) -> ModelTensors | None:
    model = _decoder(native)
    if objection_to(model.config):
        return None
    sizes, positions = sizes_of(model.config), model.positions
    layers = [layer for layer in model.layers if isinstance(layer, DecoderLayer)]
    rotary = next((rotary for rotary in model.rotaries if isinstance(rotary, RotaryEmbedding)), None)
    return ModelTensors(
        sizes=sizes,
        token_vectors=model.embedding.weight,
        position_vectors=None if positions is None else positions.weight,
        position_offset=0 if positions is None else positions.offset,
        rotations=None if rotary is None else _rotations(rotary, model_len),
        layers=[_layer(sizes, layer) for layer in layers],
        norm=_norm(model.norm),
        head=model.head.weight,
    )


def _layer(sizes: ModelSizes, layer: DecoderLayer) -> LayerTensors:
    attention, mlp = layer.attention, layer.mlp
    if isinstance(mlp, SparseMlp):
        raise ValueError("a mixture of experts, which the model's config does not say")
    return LayerTensors(
        layer_idx=attention.layer_idx,
        sizes=sizes,
        sliding_window=attention.scores.sliding_window,
        attention_norm=_norm(layer.attention_norm),
        qkv=_product(attention.qkv),
        out=_product(attention.out),
        mlp_norm=_norm(layer.mlp_norm),
        up=_product(mlp.gate_up if isinstance(mlp, GatedMlp) else mlp.up),
        down=_product(mlp.down),
        head_norms=_head_norms(attention),
    )


def _product(linear: Linear) -> Product:
    return Product(linear.weight, linear.bias)


def _head_norms(attention: Attention) -> HeadNorms | None:
    if attention.q_norm is None or attention.k_norm is None:
        return None
    return HeadNorms(_norm(attention.q_norm), _norm(attention.k_norm))


def _norm(norm: NormModule | None) -> Norm:
    if norm is None or norm.weight is None:
        raise ValueError("a norm without weights, which the model's config does not say")
    return Norm(norm.config.kind, norm.weight, norm.bias, norm.config.eps)


def _rotations(rotary: RotaryEmbedding, model_len: int) -> torch.Tensor:
    positions = torch.arange(model_len, device=rotary.frequencies.device)
    return torch.stack(rotary.turns(positions), dim=-1).contiguous()

"""What fast steps need of a model, whatever its family: its sizes, what they have against it, and its tensors.

Knows the modules and the configs of `models`, and which of their variations the kernels can do.
"""

from weakref import WeakKeyDictionary

import torch

from pagedchat.jit.driver import gpu
from pagedchat.layers.attention import Attention
from pagedchat.layers.layer_norm import EPS, LayerNorm
from pagedchat.layers.linear import Linear
from pagedchat.layers.rms_norm import RMSNorm
from pagedchat.models.llama import LlamaLayer, LlamaModel
from pagedchat.models.llama_config import LlamaConfig
from pagedchat.models.native import NativeConfig
from pagedchat.models.native_model import NativeModel
from pagedchat.models.opt import OptLayer, OptModel
from pagedchat.models.opt_config import OptConfig
from pagedchat.ops.common.launch import element_name
from pagedchat.ops.common.model_sizes import ModelSizes
from pagedchat.ops.common.norm import HeadNorms, Norm
from pagedchat.ops.products.model_tensors import LayerTensors, ModelTensors, Product
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.step_facts import Setting

# --- from a config, without tensors -------------------------------------------------------------------


def sizes_of(config: NativeConfig) -> ModelSizes:
    """How large a model is."""
    is_opt = isinstance(config, OptConfig)
    windows = () if isinstance(config, OptConfig) else config.windows
    return ModelSizes(
        num_layers=config.num_layers,
        hidden=config.hidden_size,
        middle=config.ffn_size,
        num_heads=config.heads.num_heads,
        num_kv_heads=config.heads.num_kv_heads,
        head_dim=config.heads.head_dim,
        vocab_size=config.vocab_size,
        norm="layer" if is_opt else "rms",
        gated=not is_opt,
        rotary=not is_opt,
        normed_heads=isinstance(config, LlamaConfig) and config.qk_norm,
        biased_gates=isinstance(config, LlamaConfig) and config.mlp_bias,
        num_windowed=sum(window is not None for window in windows),
    )


def objection_to(config: NativeConfig) -> str:
    """What the kernels of whole layers do not do of a model, in words that go after "since"; empty if nothing."""
    return _against_opt(config) if isinstance(config, OptConfig) else _against_llama(config)


def _against_opt(config: OptConfig) -> str:
    if not config.norm_first:
        return "its norms come behind each half of a layer"
    if not config.final_norm:
        return "it has no norm behind its last layer"
    if config.embedding_size != config.hidden_size:
        return f"its tokens' vectors are {config.embedding_size} wide and its layers {config.hidden_size}"
    if not config.affine_norms:
        return "its norms have no weights"
    return _against_activation(config.activation, "relu")


def _against_llama(config: LlamaConfig) -> str:
    return _against_activation(config.activation, "silu")


def _against_activation(activation: str, known: str) -> str:
    return "" if activation == known else f"its feed-forward goes through {activation} instead of {known}"


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
    if isinstance(model, OptModel | LlamaModel):
        return model.config
    raise TypeError(f"{type(model).__name__} is of no family whose sizes are known")


def _find(model: NativeModel, model_len: int) -> ModelTensors | None:
    config = _config(model)
    if objection_to(config):
        return None
    sizes = sizes_of(config)
    if isinstance(model, OptModel):
        return _of_opt(model, sizes)
    return _of_llama(model, sizes, model_len) if isinstance(model, LlamaModel) else None


def _of_opt(model: OptModel, sizes: ModelSizes) -> ModelTensors:
    layers = [layer for layer in model.layers if isinstance(layer, OptLayer)]
    return ModelTensors(
        sizes=sizes,
        token_vectors=model.embedding.weight,
        position_vectors=model.positions.weight,
        position_offset=model.positions.offset,
        rotations=None,
        layers=[_layer(sizes, layer, layer.mlp.up, layer.mlp.down) for layer in layers],
        norm=_norm(model.norm),
        head=model.head.weight,
    )


def _of_llama(model: LlamaModel, sizes: ModelSizes, model_len: int) -> ModelTensors:
    layers = [layer for layer in model.layers if isinstance(layer, LlamaLayer)]
    return ModelTensors(
        sizes=sizes,
        token_vectors=model.embedding.weight,
        position_vectors=None,
        position_offset=0,
        rotations=_rotations(model.rotary.frequencies, model_len),
        layers=[_layer(sizes, layer, layer.mlp.gate_up, layer.mlp.down) for layer in layers],
        norm=_norm(model.norm),
        head=model.head.weight,
    )


def _layer(sizes: ModelSizes, layer: OptLayer | LlamaLayer, up: Linear, down: Linear) -> LayerTensors:
    attention = layer.attention
    return LayerTensors(
        layer_idx=attention.layer_idx,
        sizes=sizes,
        sliding_window=attention.sliding_window,
        attention_norm=_norm(layer.attention_norm),
        qkv=_product(attention.qkv),
        out=_product(attention.out),
        mlp_norm=_norm(layer.mlp_norm),
        up=_product(up),
        down=_product(down),
        head_norms=_head_norms(attention),
    )


def _product(linear: Linear) -> Product:
    return Product(linear.weight, linear.bias)


def _head_norms(attention: Attention) -> HeadNorms | None:
    if attention.q_norm is None or attention.k_norm is None:
        return None
    return HeadNorms(_norm(attention.q_norm), _norm(attention.k_norm))


def _norm(norm: LayerNorm | RMSNorm | None) -> Norm:
    if isinstance(norm, RMSNorm):
        return Norm("rms", norm.weight, None, norm.eps)
    if norm is None or norm.weight is None:
        raise ValueError("a norm without weights, which the model's config does not say")
    return Norm("layer", norm.weight, norm.bias, EPS)


def _rotations(frequencies: torch.Tensor, model_len: int) -> torch.Tensor:
    positions = torch.arange(model_len, dtype=torch.float32, device=frequencies.device)
    angles = positions[:, None] * frequencies
    return torch.stack((angles.cos(), angles.sin()), dim=-1).contiguous()

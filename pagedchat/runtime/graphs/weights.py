"""What the fused kernels need of a model, whatever its family: one residual stream with norms before each half.

Knows the modules of `models` and which of their variations the kernels can do.
"""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch

from pagedchat.layers.attention import Attention
from pagedchat.layers.layer_norm import EPS, LayerNorm
from pagedchat.layers.linear import Linear
from pagedchat.layers.mlp import GatedMlp, Mlp
from pagedchat.layers.rms_norm import RMSNorm
from pagedchat.models.llama import LlamaLayer, LlamaModel
from pagedchat.models.opt import OptLayer, OptModel
from pagedchat.ops.common.norm import Norm
from pagedchat.ops.products.embed_tokens import embed_tokens
from pagedchat.ops.products.small_batch_linear import Activation


@dataclass(frozen=True, slots=True)
class FusedLayer:
    """The tensors of a layer, those of the model itself."""

    attention: Attention
    attention_norm: Norm
    mlp_norm: Norm
    up: Linear
    """With `paired` gates and values, else the one product into the middle."""
    down: Linear
    activation: Activation
    paired: bool


@dataclass(frozen=True, slots=True)
class FusedModel:
    """The tensors of a model."""

    token_vectors: torch.Tensor
    position_vectors: torch.Tensor | None
    position_offset: int
    rotations: torch.Tensor | None
    """`[model_len, head_dim / 2, 2]`, float32: cosine and sine."""
    layers: list[FusedLayer]
    norm: Norm
    head: torch.Tensor
    """`[vocab_size, width]`."""

    def embed(self, token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Where the residual stream starts; see `ops.embed_tokens`."""
        return embed_tokens(
            self.token_vectors,
            token_ids,
            positions,
            position_vectors=self.position_vectors,
            position_offset=self.position_offset,
        )


_found: WeakKeyDictionary[torch.nn.Module, dict[int, FusedModel | None]] = WeakKeyDictionary()
"""What was found of models that are still there, by `model_len`."""


def fused_model(model: torch.nn.Module, model_len: int) -> FusedModel | None:
    """The tensors of a model; None if it has something that the fused kernels do not do.

    Args:
        model: any.
        model_len: tokens of a sequence, at most.
    """
    found = _found.setdefault(model, {})  # decodes and prompts ask for the same, and the rotations are large
    if model_len not in found:
        found[model_len] = _find(model, model_len)
    return found[model_len]


def _find(model: torch.nn.Module, model_len: int) -> FusedModel | None:
    if isinstance(model, OptModel):
        return _fused_opt(model)
    return _fused_llama(model, model_len) if isinstance(model, LlamaModel) else None


def _fused_opt(model: OptModel) -> FusedModel | None:
    norm = None if model.norm is None else _layer_norm(model.norm)
    layers = [_opt_layer(layer) for layer in model.layers if isinstance(layer, OptLayer)]
    known = [layer for layer in layers if layer is not None]
    if norm is None or model.project_in is not None or len(known) < len(model.layers):
        return None
    positions = model.positions
    return FusedModel(
        model.embedding.weight, positions.weight, positions.offset, None, known, norm, model.head.weight
    )


def _opt_layer(layer: OptLayer) -> FusedLayer | None:
    attention_norm, mlp_norm = _layer_norm(layer.attention_norm), _layer_norm(layer.mlp_norm)
    if not layer.norm_first or attention_norm is None or mlp_norm is None or not isinstance(layer.mlp, Mlp):
        return None
    if layer.mlp.activation != "relu":
        return None
    return FusedLayer(layer.attention, attention_norm, mlp_norm, layer.mlp.up, layer.mlp.down, "relu", False)


def _fused_llama(model: LlamaModel, model_len: int) -> FusedModel | None:
    layers = [_llama_layer(layer) for layer in model.layers if isinstance(layer, LlamaLayer)]
    known = [layer for layer in layers if layer is not None]
    if len(known) < len(model.layers):
        return None
    rotations = _rotations(model.rotary.frequencies, model_len)
    return FusedModel(model.embedding.weight, None, 0, rotations, known, _rms_norm(model.norm), model.head.weight)


def _llama_layer(layer: LlamaLayer) -> FusedLayer | None:
    mlp = layer.mlp
    if layer.attention.q_norm is not None or not isinstance(mlp, GatedMlp) or mlp.activation != "silu":
        return None
    if mlp.gate_up.bias is not None:
        return None
    norms = _rms_norm(layer.attention_norm), _rms_norm(layer.mlp_norm)
    return FusedLayer(layer.attention, *norms, mlp.gate_up, mlp.down, "silu", True)


def _layer_norm(norm: LayerNorm) -> Norm | None:
    return None if norm.weight is None else Norm("layer", norm.weight, norm.bias, EPS)


def _rms_norm(norm: RMSNorm) -> Norm:
    return Norm("rms", norm.weight, None, norm.eps)


def _rotations(frequencies: torch.Tensor, model_len: int) -> torch.Tensor:
    positions = torch.arange(model_len, dtype=torch.float32, device=frequencies.device)
    angles = positions[:, None] * frequencies
    return torch.stack((angles.cos(), angles.sin()), dim=-1).contiguous()

"""What a layer of a model multiplies by, norms with and attends like, as compiled code on a CPU wants it. Knows the
model's modules; no steps, no memory.
"""

from typing import NamedTuple

import torch

from pagedchat.layers.attention import Attention
from pagedchat.layers.experts import SparseMlp
from pagedchat.layers.mlp import GatedMlp
from pagedchat.layers.norms import Norm
from pagedchat.layers.quantized_linear import QuantizedLinear
from pagedchat.models.cpu_linear import KernelLinear
from pagedchat.models.decoder import Decoder
from pagedchat.models.decoder_layer import DecoderLayer
from pagedchat.ops.cpu.product import Product, RowNorm
from pagedchat.runtime.cpu.objections import ACTIVATION_NAMES

ALL_TOKENS = 1 << 62
"""A window that no sequence fills."""

Products = tuple[Product, ...]
"""Whose results stand side by side; more than one where a weight comes in several forms."""


class LayerParts(NamedTuple):
    """What a layer multiplies by and norms with."""

    attention_norm: RowNorm
    qkv: Products
    head_norms: tuple[RowNorm, RowNorm] | None
    out: Products
    mlp_norm: RowNorm
    up: Products
    activation: str
    down: Products
    turned_by: int | None
    window: int
    scale: float


def products_of(module: torch.nn.Module) -> Products:
    """What a linear layer multiplies by.

    Raises:
        LookupError: of no kernels, or not of them alone.
    """
    products = module.products if isinstance(module, KernelLinear | QuantizedLinear) else ()
    if not products:
        raise LookupError(f"{type(module).__name__} has no kernels")
    return products


def layers_of(model: Decoder) -> list[DecoderLayer]:
    """In order."""
    return [layer for layer in model.layers if isinstance(layer, DecoderLayer)]


def parts_of(model: Decoder, index: int, layer: DecoderLayer) -> LayerParts:
    """Of one layer.

    Raises:
        LookupError: something in it has no kernels.
    """
    attention, mlp, config = layer.attention, layer.mlp, model.config
    assert layer.attention_norm is not None  # noqa: S101 - norms come before each half
    assert layer.mlp_norm is not None  # noqa: S101
    if isinstance(mlp, SparseMlp):
        raise LookupError("a mixture of experts has no kernels")
    up = mlp.gate_up if isinstance(mlp, GatedMlp) else mlp.up
    activation = ACTIVATION_NAMES[config.activation]
    window = config.windows[index]
    return LayerParts(
        attention_norm=norm_of(layer.attention_norm),
        qkv=products_of(attention.qkv),
        head_norms=_head_norms(attention),
        out=products_of(attention.out),
        mlp_norm=norm_of(layer.mlp_norm),
        up=products_of(up),
        activation=f"{activation}_gated" if isinstance(mlp, GatedMlp) else activation,
        down=products_of(mlp.down),
        turned_by=model.turned_by[index],
        window=ALL_TOKENS if window is None else window,
        scale=attention.scores.scale,
    )


def _head_norms(attention: Attention) -> tuple[RowNorm, RowNorm] | None:
    if attention.q_norm is None or attention.k_norm is None:
        return None
    return norm_of(attention.q_norm), norm_of(attention.k_norm)


def norm_of(norm: Norm) -> RowNorm:
    """With its weights as kernels take them."""
    weight = torch.ones(norm.width) if norm.weight is None else norm.weight.detach().float() + norm.config.offset
    bias = None if norm.bias is None else norm.bias.detach().float().contiguous()
    return RowNorm(norm.config.kind, weight.contiguous(), bias, norm.config.eps)

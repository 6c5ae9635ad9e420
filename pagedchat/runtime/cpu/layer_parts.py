"""What a layer of a model multiplies by, norms with and attends like, as compiled code on a CPU wants it. Knows the
model's modules; no steps, no memory.
"""

from typing import NamedTuple

import torch

from pagedchat.layers.attention import Attention
from pagedchat.layers.experts import SparseMlp
from pagedchat.layers.mlp import GatedMlp, Mlp
from pagedchat.layers.norms import Norm
from pagedchat.layers.quantized_experts import QuantizedExperts
from pagedchat.layers.quantized_linear import QuantizedLinear
from pagedchat.models.cpu_linear import KernelLinear
from pagedchat.models.decoder import Decoder
from pagedchat.models.decoder_layer import DecoderLayer
from pagedchat.ops.cpu.mixture import CpuMixture, ExpertTables
from pagedchat.ops.cpu.product import Product, RowNorm
from pagedchat.runtime.cpu.objections import ACTIVATION_NAMES

ALL_TOKENS = 1 << 62
"""A window that no sequence fills."""

Products = tuple[Product, ...]
"""Whose results stand side by side; more than one where a weight comes in several forms."""


class FeedForwardParts(NamedTuple):
    """What a feed-forward multiplies by."""

    up: Products
    activation: str
    """Of what goes down, as kernels call it."""
    down: Products


class MixtureParts(NamedTuple):
    """The same of a mixture of experts."""

    router: Products
    experts: CpuMixture
    shared: FeedForwardParts | None
    """The expert that all tokens have."""
    shared_gate: Products
    """Empty where there is none."""


class LayerParts(NamedTuple):
    """What a layer multiplies by and norms with."""

    attention_norm: RowNorm
    qkv: Products
    head_norms: tuple[RowNorm, RowNorm] | None
    """Of queries and of keys, head by head."""
    width_norms: tuple[RowNorm, RowNorm] | None
    """The same of all heads together."""
    out: Products
    mlp_norm: RowNorm
    feed_forward: FeedForwardParts | MixtureParts
    turned_by: int | None
    window: int
    scale: float
    sinks: torch.Tensor | None
    """float32 `[num_heads]`."""

    @property
    def large_products(self) -> Products:
        """All but those of experts and of a router."""
        feed = self.feed_forward.shared if isinstance(self.feed_forward, MixtureParts) else self.feed_forward
        return (*self.qkv, *self.out, *(() if feed is None else (*feed.up, *feed.down)))

    @property
    def widest(self) -> int:
        """Inputs of a product, at most."""
        return max(each.in_features for each in self.large_products)

    @property
    def widest_middle(self) -> int:
        """Results of the first product of a feed-forward, gates included; 0: there is none but experts'."""
        feed = self.feed_forward.shared if isinstance(self.feed_forward, MixtureParts) else self.feed_forward
        return 0 if feed is None else sum(each.out_features for each in feed.up)

    def weight_bytes(self, num_rows: int) -> int:
        """That a step of so many rows reads, at most."""
        dense = sum(each.nbytes for each in self.large_products)
        if not isinstance(self.feed_forward, MixtureParts):
            return dense
        experts, router = self.feed_forward.experts, self.feed_forward.router
        dense += sum(each.nbytes for each in (*router, *self.feed_forward.shared_gate))
        share = min(1.0, num_rows * experts.per_token / experts.into.num_experts)
        return dense + int(share * (experts.into.nbytes + experts.out.nbytes))


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
    window = config.windows[index]
    over_width = config.qk_norm is not None and config.qk_norm.over == "width"
    return LayerParts(
        attention_norm=norm_of(layer.attention_norm),
        qkv=products_of(attention.qkv),
        head_norms=None if over_width else _norms_of_heads(attention),
        width_norms=_norms_of_heads(attention) if over_width else None,
        out=products_of(attention.out),
        mlp_norm=norm_of(layer.mlp_norm),
        feed_forward=_mixture(mlp) if isinstance(mlp, SparseMlp) else _feed_forward(mlp),
        turned_by=model.turned_by[index],
        window=ALL_TOKENS if window is None else window,
        scale=attention.scores.scale,
        sinks=None if attention.sinks is None else attention.sinks.detach().float().contiguous(),
    )


def _feed_forward(mlp: Mlp | GatedMlp) -> FeedForwardParts:
    activation = ACTIVATION_NAMES[mlp.activation]
    if isinstance(mlp, GatedMlp):
        return FeedForwardParts(products_of(mlp.gate_up), f"{activation}_gated", products_of(mlp.down))
    return FeedForwardParts(products_of(mlp.up), activation, products_of(mlp.down))


def _mixture(mixture: SparseMlp) -> MixtureParts:
    experts, config = mixture.experts, mixture.config
    if not isinstance(experts, QuantizedExperts):
        raise LookupError("experts with weights that are not of few bits have no kernels")
    into, out = experts.separate
    return MixtureParts(
        router=products_of(mixture.router),
        experts=CpuMixture(
            ExpertTables(into.kernel_products, mixture.gate_up_bias),
            ExpertTables(out.kernel_products, mixture.down_bias),
            config.per_token,
            config.renormalised,
            config.gate,
        ),
        shared=None if mixture.shared is None else _feed_forward(mixture.shared),
        shared_gate=() if mixture.shared_gate is None else products_of(mixture.shared_gate),
    )


def _norms_of_heads(attention: Attention) -> tuple[RowNorm, RowNorm] | None:
    if attention.q_norm is None or attention.k_norm is None:
        return None
    return norm_of(attention.q_norm), norm_of(attention.k_norm)


def norm_of(norm: Norm) -> RowNorm:
    """With its weights as kernels take them."""
    weight = torch.ones(norm.width) if norm.weight is None else norm.weight.detach().float() + norm.config.offset
    bias = None if norm.bias is None else norm.bias.detach().float().contiguous()
    return RowNorm(norm.config.kind, weight.contiguous(), bias, norm.config.eps)

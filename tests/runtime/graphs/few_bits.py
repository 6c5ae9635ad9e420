"""Tiny models whose weights have few bits, and the same with the floats that these stand for."""

import torch
from torch import nn

from pagedchat.layers.attention import Attention
from pagedchat.layers.few_bits_linear import FewBitsLinear
from pagedchat.layers.linear import Linear
from pagedchat.models.native_model import NativeModel
from pagedchat.ops.quantized.weight import QuantizedWeight
from tests.ops.products.few_bits_case import FORMS, in_form

MODEL_FORMS = (*FORMS, "int4, 32, minimums; int8")
"""What products have, and behind it what values have where that is something else, which makes them a product."""


def bring_to_few_bits(model: NativeModel, form: str) -> NativeModel:
    """All its products, in a form of `MODEL_FORMS`."""
    form, _, of_values = form.partition("; ")
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if type(child) is Linear:
                weight = child.weight.detach()
                values = (
                    parent.heads.kv_width if of_values and isinstance(parent, Attention) and name == "qkv" else 0
                )
                border = len(weight) - values
                few = [in_form(weight[:border], form), *([in_form(weight[border:], of_values)] if values else [])]
                parts = [part for part in few if isinstance(part, QuantizedWeight)]
                setattr(parent, name, FewBitsLinear(parts, child.bias))
    return model


def as_floats(model: NativeModel, dtype: torch.dtype) -> NativeModel:
    """Its products become floats, all of it of a type; the model is changed."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, FewBitsLinear):
                bias = child.bias
                whole = Linear(child.in_features, child.out_features, bias=bias is not None)
                floats = torch.cat([part.dequantized(dtype) for part in child.parts])
                whole.weight = nn.Parameter(floats, requires_grad=False)
                whole.bias = bias
                setattr(parent, name, whole)
    return model.to(dtype)

"""Tiny models whose weights have few bits, and the same with the floats that these stand for."""

import torch
from torch import nn

from pagedchat.layers.few_bits_linear import FewBitsLinear
from pagedchat.layers.linear import Linear
from pagedchat.models.native_model import NativeModel
from pagedchat.ops.quantized.weight import QuantizedWeight
from tests.ops.products.few_bits_case import in_form


def bring_to_few_bits(model: NativeModel, form: str) -> NativeModel:
    """All its products, in a form of `FORMS`."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if type(child) is Linear:
                few = in_form(child.weight.detach(), form)
                assert isinstance(few, QuantizedWeight)
                setattr(parent, name, FewBitsLinear(few, child.bias))
    return model


def as_floats(model: NativeModel, dtype: torch.dtype) -> NativeModel:
    """Its products become floats, all of it of a type; the model is changed."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, FewBitsLinear):
                few, bias = child.few, child.bias
                whole = Linear(few.in_features, few.out_features, bias=bias is not None)
                whole.weight = nn.Parameter(few.dequantized(dtype), requires_grad=False)
                whole.bias = bias
                setattr(parent, name, whole)
    return model.to(dtype)

"""A model of quantised layers without values: built without memory, then given what is not quantised. Knows no
file.
"""

import torch
from torch import nn

from pagedchat.layers.embedding import Embedding
from pagedchat.layers.linear import Linear
from pagedchat.layers.quantized_linear import QuantizedLinear, StoredEmbedding
from pagedchat.layers.weights import new_tensors
from pagedchat.models.native import NativeConfig, build
from pagedchat.models.native_model import NativeModel


def quantized_shell(config: NativeConfig, dtype: torch.dtype) -> NativeModel:
    """The model on a CPU, with memory for norms, biases and the like alone.

    Args:
        config: what is built.
        dtype: of its rows, and of what is not quantised.
    """
    with new_tensors(dtype, torch.device("meta")):
        model = build(config).eval()
    with new_tensors(dtype, torch.device("cpu")):
        _replace_layers(model, dtype)
        _take_memory(model)
    return model


def _replace_layers(model: NativeModel, dtype: torch.dtype) -> None:
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if type(child) is Linear:
                setattr(parent, name, QuantizedLinear(child))
            elif type(child) is Embedding and child is model.embedding:
                setattr(parent, name, StoredEmbedding(child, dtype))


def _take_memory(model: nn.Module) -> None:
    """Of what is worked out from the config alone everything is on the CPU already, and has values."""
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.is_meta:
                # `empty_like` of a tensor without memory imports sympy, which takes two seconds.
                empty = torch.empty(parameter.shape, dtype=parameter.dtype, device="cpu")
                module.register_parameter(name, nn.Parameter(empty, requires_grad=False))

"""A model of quantised layers without values: built without memory, then given what is not quantised. Knows no
file.
"""

import torch
from torch import nn

from pagedchat.layers.embedding import Embedding
from pagedchat.layers.experts import SparseMlp
from pagedchat.layers.linear import Linear
from pagedchat.layers.quantized_experts import quantize_experts
from pagedchat.layers.quantized_linear import QuantizedLinear, StoredEmbedding
from pagedchat.layers.weights import new_tensors
from pagedchat.models.native import NativeConfig, build
from pagedchat.models.native_model import NativeModel
from pagedchat.ops.ranks.company import ALONE, Ranks

CPU = torch.device("cpu")


def quantized_shell(
    config: NativeConfig,
    dtype: torch.dtype,
    device: torch.device = CPU,
    *,
    stores_table: bool = True,
    ranks: Ranks = ALONE,
) -> NativeModel:
    """The model, with memory for norms, biases and the like alone.

    Args:
        config: what is built.
        dtype: of its rows, and of what is not quantised.
        device: where it runs.
        stores_table: whether the table of tokens' vectors is kept as it is stored too; else it has memory.
        ranks: who has the other parts, where the config is one of a part.
    """
    with new_tensors(dtype, torch.device("meta")):
        model = build(config, ranks).eval()
    with new_tensors(dtype, device):
        _replace_layers(model, dtype, stores_table=stores_table)
        _take_memory(model, device)
    return model


def _replace_layers(model: NativeModel, dtype: torch.dtype, *, stores_table: bool) -> None:
    for mixture in [module for module in model.modules() if isinstance(module, SparseMlp)]:
        quantize_experts(mixture)
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if type(child) is Linear:
                setattr(parent, name, QuantizedLinear(child))
            elif stores_table and type(child) is Embedding and child is model.embedding:
                setattr(parent, name, StoredEmbedding(child, dtype))


def _take_memory(model: nn.Module, device: torch.device) -> None:
    """Of what is worked out from the config alone everything is on the CPU already, and has values."""
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.is_meta:
                # `empty_like` of a tensor without memory imports sympy, which takes two seconds.
                empty = torch.empty(parameter.shape, dtype=parameter.dtype, device=device)
                module.register_parameter(name, nn.Parameter(empty, requires_grad=False))

"""A matrix product whose weight has few bits on a GPU. Knows no file, and no step.

It is what a `QuantizedLinear` becomes once its weight is there, where kernels take the form of all of it; where
they do not, a layer of floats takes its place.
"""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import nn

from pagedchat.layers.attention import Attention
from pagedchat.layers.by_torch import HasKernels
from pagedchat.layers.linear import Linear
from pagedchat.layers.quantized_experts import QuantizedExperts
from pagedchat.layers.quantized_linear import QuantizedLinear
from pagedchat.layers.weights import new_tensors
from pagedchat.ops.products.small_batch_linear import small_batch_linear
from pagedchat.ops.products.streamed_plan import MAX_TOKENS, UNIT, takes
from pagedchat.ops.quantized.linear import dequantized_linear
from pagedchat.ops.quantized.multiply import multiply
from pagedchat.ops.quantized.weight import QuantizedWeight, Weight


class FewBitsLinear(Linear, HasKernels):
    """`rows @ weight.T + bias`.

    Args:
        parts: of the weight, one below the other: one, or two of different forms.
        bias: `[out_features]`.
    """

    def __init__(self, parts: Sequence[QuantizedWeight], bias: nn.Parameter | None) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = parts[0].in_features, sum(map(len, parts))
        shape = (self.out_features, self.in_features)
        self.weight = torch.empty(shape, device="meta")  # type: ignore[assignment]  # no parameter
        self.bias = bias
        self.parts = tuple(parts)
        self.by_kernels = False
        """Whether a few rows are multiplied by kernels here: where no fast step does, which asks for `parts`."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """`[num_rows, in_features]` -> `[num_rows, out_features]`."""
        products = [self._product(rows, *each) for each in weights_of(self)]
        return products[0] if len(products) == 1 else torch.cat(products, dim=-1)

    def _product(self, rows: torch.Tensor, weight: Weight, bias: torch.Tensor | None) -> torch.Tensor:
        if self.by_torch and isinstance(weight, QuantizedWeight):
            return dequantized_linear(rows, weight, bias=bias)
        if self.by_kernels and 1 <= len(rows) <= MAX_TOKENS:
            return small_batch_linear(rows.contiguous(), weight, bias=bias)
        return multiply(rows, weight, bias)


def weights_of(linear: Linear) -> list[tuple[Weight, torch.Tensor | None]]:
    """What a layer multiplies by, one below the other, each with its rows of the bias."""
    if not isinstance(linear, FewBitsLinear):
        return [(linear.weight, linear.bias)]
    stops = list(accumulate(map(len, linear.parts)))
    spans = [slice(start, stop) for start, stop in zip([0, *stops], stops, strict=False)]
    biases = [None if linear.bias is None else linear.bias[span] for span in spans]
    return list(zip(linear.parts, biases, strict=True))


def weight_of(linear: Linear) -> Weight:
    """The same of one whose weight has one form.

    Raises:
        ValueError: it has several.
    """
    weights = weights_of(linear)
    if len(weights) > 1:
        raise ValueError(f"the weight has {len(weights)} forms, where one is wanted")
    return weights[0][0]


def settle(model: nn.Module, head: nn.Module, dtype: torch.dtype) -> list[str]:
    """Put in the place of every `QuantizedLinear` what multiplies on a GPU.

    Args:
        model: whose weights are all there.
        head: the layer whose rows need not be whole units of the kernels.
        dtype: of rows, and of what has to become floats.

    Returns:
        Names of products whose few bits became floats, as no kernel takes their form.
    """
    made_whole = []
    for name, experts in list(model.named_modules()):
        if isinstance(experts, QuantizedExperts):
            if not experts.stack(dtype):
                made_whole.append(name)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()  # of what they were before, in pieces that nothing else fits into
    for parent_name, parent in list(model.named_modules()):
        for name, child in parent.named_children():
            if isinstance(child, QuantizedLinear):
                few = _few(child, _value_row(parent, child), is_head=child is head)
                if not few and any(isinstance(part, QuantizedWeight) for part in child.parts):
                    made_whole.append(f"{parent_name}.{name}".lstrip("."))
                setattr(parent, name, FewBitsLinear(few, child.bias) if few else _whole(child, dtype))
    return made_whole


def use_kernels(model: nn.Module) -> None:
    """Have its layers multiply a few rows by kernels from now on: where no fast step takes their weights."""
    for module in model.modules():
        if isinstance(module, FewBitsLinear):
            module.by_kernels = True


def _value_row(parent: nn.Module, linear: Linear) -> int:
    """The first row of values where a layer makes queries, keys and values; 0: it makes something else."""
    if not isinstance(parent, Attention) or linear is not parent.qkv:
        return 0
    return linear.out_features - parent.heads.kv_width


def _few(linear: QuantizedLinear, border: int, *, is_head: bool) -> list[QuantizedWeight]:
    """Its whole weight in one form that kernels take, or in two that meet at a border; empty: it is in others."""
    few = [part for part in linear.parts if isinstance(part, QuantizedWeight)]
    fit = all(takes(part.form, part.in_features, len(part)) for part in few)
    in_units = is_head or all(len(part) % UNIT == 0 for part in few)
    of_one = len(few) == 1 or (len(few) == 2 and len(few[0]) == border)
    return few if len(few) == len(linear.parts) and of_one and fit and in_units else []


def _whole(linear: QuantizedLinear, dtype: torch.dtype) -> Linear:
    """The same with floats; the parts are gone."""
    parts = [part for part in linear.parts if isinstance(part, torch.Tensor | QuantizedWeight)]  # no CPU's kernels
    linear.parts = []
    with new_tensors(dtype, parts[0].device):
        whole = Linear(linear.in_features, linear.out_features, bias=False)
    whole.bias = linear.bias
    start = 0
    for part in parts:
        floats = part.dequantized(dtype) if isinstance(part, QuantizedWeight) else part.to(dtype)
        whole.weight[start : start + len(floats)] = floats
        start += len(floats)
    return whole

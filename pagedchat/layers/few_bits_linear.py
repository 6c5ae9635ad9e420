"""A matrix product whose weight has few bits on a GPU. Knows no file, and no step.

It is what a `QuantizedLinear` becomes once its weight is there, where kernels take the form of all of it; where
they do not, a layer of floats takes its place.
"""

import torch
from torch import nn

from pagedchat.layers.by_torch import HasKernels
from pagedchat.layers.linear import Linear
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
        few: `[out_features, in_features]`.
        bias: `[out_features]`.
    """

    def __init__(self, few: QuantizedWeight, bias: nn.Parameter | None) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = few.in_features, few.out_features
        self.weight = torch.empty(few.shape, device="meta")  # type: ignore[assignment]  # no parameter
        self.bias = bias
        self.few = few
        self.by_kernels = False
        """Whether a few rows are multiplied by kernels here: where no fast step does that, which asks for `few`."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """`[num_rows, in_features]` -> `[num_rows, out_features]`."""
        if self.by_torch:
            return dequantized_linear(rows, self.few, bias=self.bias)
        if self.by_kernels and 1 <= len(rows) <= MAX_TOKENS:
            return small_batch_linear(rows.contiguous(), self.few, bias=self.bias)
        return multiply(rows, self.few, self.bias)


def weight_of(linear: Linear) -> Weight:
    """What a layer multiplies by."""
    return linear.few if isinstance(linear, FewBitsLinear) else linear.weight


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
    for parent_name, parent in list(model.named_modules()):
        for name, child in parent.named_children():
            if isinstance(child, QuantizedLinear):
                few = _few(child, is_head=child is head)
                if few is None and any(isinstance(part, QuantizedWeight) for part in child.parts):
                    made_whole.append(f"{parent_name}.{name}".lstrip("."))
                setattr(parent, name, _whole(child, dtype) if few is None else FewBitsLinear(few, child.bias))
    return made_whole


def use_kernels(model: nn.Module) -> None:
    """Have its layers multiply a few rows by kernels from now on: where no fast step takes their weights."""
    for module in model.modules():
        if isinstance(module, FewBitsLinear):
            module.by_kernels = True


def _few(linear: QuantizedLinear, *, is_head: bool) -> QuantizedWeight | None:
    """Its whole weight in one form that kernels take."""
    parts = linear.parts
    if len(parts) != 1 or not isinstance(parts[0], QuantizedWeight):
        return None
    few = parts[0]
    fits = takes(few.form, few.in_features, few.out_features) and (is_head or few.out_features % UNIT == 0)
    return few if fits else None


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

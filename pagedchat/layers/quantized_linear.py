"""A matrix product whose weight has few bits, and a table of rows as it is stored. Knows no file and no kernel.

Both take the place of a layer with floats before a checkpoint is read. Neither has a weight to copy into: what the
checkpoint brings is kept as it comes, in parts, since it may bring queries, keys and values in different forms.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from pagedchat.layers.embedding import Embedding
from pagedchat.layers.linear import Linear
from pagedchat.layers.weights import Places, empty_parameter
from pagedchat.ops.quantized.linear import dequantized_linear, quantized_linear
from pagedchat.ops.quantized.weight import QuantizedWeight, form, stacked

Stored = torch.Tensor | QuantizedWeight
"""A matrix, `[rows, width]`."""


class Slot(NamedTuple):
    """Where a part of a product's weight goes."""

    linear: "QuantizedLinear"
    start: int
    """Its first row there."""
    transposed: bool
    """The checkpoint has it as `[in_features, rows]`."""


class QuantizedLinear(Linear):
    """`rows @ weight.T + bias`; the weight comes in parts.

    Args:
        linear: whose place it takes; its weight has a shape and no values.
    """

    def __init__(self, linear: Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = torch.empty(linear.weight.shape, device="meta")  # type: ignore[assignment]  # no parameter
        self.bias = None if linear.bias is None else empty_parameter(self.out_features)
        self.slots: dict[str, Slot] = {}
        """By the names that `part_places` was asked for."""
        self.by_dequantising = False
        """Whether torch does it, whatever kernels there are."""
        self.parts: list[Stored] = []
        """One below the other."""
        self._given: dict[int, Stored] = {}

    def part_places(self, parts: dict[str, int], *, transposed: bool = False) -> Places:
        """See `Linear`. The places of weights have shapes alone: what goes there is given to `fill`."""
        start = 0
        for name, width in parts.items():
            self.slots[f"{name}.weight"] = Slot(self, start, transposed)
            start += width
        return super().part_places(parts, transposed=transposed)

    def fill(self, start: int, part: Stored) -> None:
        """Take some rows of the weight; with the last ones those of one form become one.

        Args:
            start: the first of them.
            part: `[num_rows, in_features]`, floats of the model's type or few bits.
        """
        self._given[start] = part
        if sum(_num_rows(each) for each in self._given.values()) == self.out_features:
            self.parts = _joined([self._given[start] for start in sorted(self._given)])
            self._given = {}

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """`[num_rows, in_features]` -> `[num_rows, out_features]`."""
        products = [self._product(rows, part) for part in self.parts]
        product = products[0] if len(products) == 1 else torch.cat(products, dim=-1)
        return product if self.bias is None else product + self.bias

    def _product(self, rows: torch.Tensor, part: Stored) -> torch.Tensor:
        if isinstance(part, torch.Tensor):
            return self.arithmetic.multiply(rows, part, None)
        if self.by_dequantising or self.arithmetic.batch_invariant:
            return dequantized_linear(rows, part, self.arithmetic.multiply)
        return quantized_linear(rows, part)


class StoredEmbedding(Embedding):
    """Rows by index, each brought to the model's type when it is asked for.

    Args:
        embedding: whose place it takes; its weight has a shape and no values.
        dtype: of what it gives.
    """

    def __init__(self, embedding: Embedding, dtype: torch.dtype) -> None:
        nn.Module.__init__(self)
        self.offset = embedding.offset
        self.weight = torch.empty(embedding.weight.shape, device="meta")  # type: ignore[assignment]  # no parameter
        self.dtype = dtype
        self.table: Stored = self.weight

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        """See `Embedding`."""
        indices = indices + self.offset if self.offset else indices
        if isinstance(self.table, QuantizedWeight):
            return self.table.rows(indices).dequantized(self.dtype)
        return functional.embedding(indices, self.table).to(self.dtype)


@contextmanager
def by_dequantising(model: nn.Module) -> Iterator[None]:
    """Inside, all weights of few bits are multiplied by torch, as floats: what their kernels are held against."""
    linears = [module for module in model.modules() if isinstance(module, QuantizedLinear)]
    for linear in linears:
        linear.by_dequantising = True
    try:
        yield
    finally:
        for linear in linears:
            linear.by_dequantising = False


def stored_parts(model: nn.Module) -> list[Stored]:
    """What its quantised layers hold; what two share comes once."""
    parts: list[Stored] = []
    for module in model.modules():
        if isinstance(module, QuantizedLinear):
            parts += module.parts
        elif isinstance(module, StoredEmbedding):
            parts.append(module.table)
    return list({id(part): part for part in parts}.values())


def _num_rows(part: Stored) -> int:
    return len(part) if isinstance(part, torch.Tensor) else part.out_features


def _joined(parts: list[Stored]) -> list[Stored]:
    """Neighbours of one form become one part."""
    joined: list[Stored] = []
    alike: list[Stored] = []
    for part in parts:
        if alike and _form(part) != _form(alike[0]):
            joined.append(_one(alike))
            alike = []
        alike.append(part)
    return [*joined, _one(alike)]


def _form(part: Stored) -> object:
    return part.dtype if isinstance(part, torch.Tensor) else form(part)


def _one(parts: list[Stored]) -> Stored:
    """Of one form each."""
    if len(parts) == 1:
        return parts[0]
    few = [part for part in parts if isinstance(part, QuantizedWeight)]
    return stacked(few) if few else torch.cat([part for part in parts if isinstance(part, torch.Tensor)])

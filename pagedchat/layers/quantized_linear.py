"""A matrix product whose weight has few bits, and a table of rows as it is stored. Knows no file.

Both take the place of a layer with floats before a checkpoint is read. Neither has a weight to copy into: what the
checkpoint brings is kept as it comes, in parts, since it may bring queries, keys and values in different forms.
Where there are kernels each part is then rearranged for them, once, and nothing is left of what came.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import nn

from pagedchat.layers.by_torch import HasKernels
from pagedchat.layers.embedding import Embedding
from pagedchat.layers.linear import Linear
from pagedchat.layers.weights import Places, empty_parameter
from pagedchat.ops.common.pages import FileRows
from pagedchat.ops.cpu.kernels import CpuKernels
from pagedchat.ops.cpu.linear import CpuLinear, objection_to
from pagedchat.ops.cpu.packing import PackedWeight
from pagedchat.ops.cpu.product import Product
from pagedchat.ops.quantized.linear import dequantized_linear
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
    in_turns: bool = False
    """Its even rows are the first half of those here, its odd ones the second."""

    def in_order(self, num_rows: int) -> Iterator[tuple[int, slice]]:
        """Which of its rows come one behind the other, each time with the first place here that they take."""
        if not self.in_turns:
            yield self.start, slice(None)
            return
        yield self.start, slice(0, None, 2)
        yield self.start + num_rows // 2, slice(1, None, 2)


class QuantizedLinear(Linear, HasKernels):
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
        self.parts: list[Stored | PackedWeight | CpuLinear] = []
        """One below the other; a part that kernels multiply by has its rows of the bias with it."""
        self._given: dict[int, Stored | PackedWeight] = {}

    def part_places(self, parts: dict[str, int], *, transposed: bool = False) -> Places:
        """See `Linear`. The places of weights have shapes alone: what goes there is given to `fill`."""
        start = 0
        for name, width in parts.items():
            self.slots[f"{name}.weight"] = Slot(self, start, transposed)
            start += width
        return super().part_places(parts, transposed=transposed)

    def fill(self, start: int, part: Stored | PackedWeight) -> None:
        """Take some rows of the weight; with the last ones those of one form become one, but for packed ones.

        Args:
            start: the first of them.
            part: `[num_rows, in_features]`, floats of the model's type or few bits, which may be in the order of
                kernels already.
        """
        self._given[start] = part
        if sum(_num_rows(each) for each in self._given.values()) == self.out_features:
            self.parts = [*_joined([self._given[start] for start in sorted(self._given)])]
            self._given = {}

    def use_kernels(self, kernels: CpuKernels, tables: "list[StoredEmbedding]") -> None:
        """Rearrange its parts for kernels of this process, one by one; those that they do not take stay.

        Args:
            kernels: of this process.
            tables: which may be the same as a part; they are then what it has become.
        """
        start = 0
        for index, part in enumerate(self.parts):
            stop = start + _num_rows(part)
            if not isinstance(part, CpuLinear) and not objection_to(part):
                linear = CpuLinear(part, self._bias(start, stop), kernels=kernels)
                self.parts[index] = linear
                for table in tables:
                    if table.table is part and linear.product is not None:
                        table.table = linear.product.weight
            start = stop

    @property
    def products(self) -> tuple[Product, ...]:
        """What whole steps multiply by, side by side; none where torch does a part of it."""
        if self.by_torch:
            return ()
        found = [part.product if isinstance(part, CpuLinear) else None for part in self.parts]
        return () if None in found else tuple(each for each in found if each is not None)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """`[num_rows, in_features]` -> `[num_rows, out_features]`."""
        products, start = [], 0
        for part in self.parts:
            stop = start + _num_rows(part)
            products.append(self._product(rows, part, self._bias(start, stop)))
            start = stop
        return products[0] if len(products) == 1 else torch.cat(products, dim=-1)

    def _product(
        self, rows: torch.Tensor, part: Stored | PackedWeight | CpuLinear, bias: torch.Tensor | None
    ) -> torch.Tensor:
        by_floats = self.by_torch or self.arithmetic.batch_invariant
        if isinstance(part, CpuLinear) and not by_floats:
            return part(rows)
        weight = part.weight if isinstance(part, CpuLinear) else part
        if not isinstance(weight, torch.Tensor):
            return dequantized_linear(rows, weight, self.arithmetic.multiply, bias=bias)
        product = self.arithmetic.multiply(rows, weight, None)
        return product if bias is None else product + bias

    def _bias(self, start: int, stop: int) -> torch.Tensor | None:
        """Of some of its rows."""
        return None if self.bias is None else self.bias[start:stop]


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
        self.table: Stored | PackedWeight = self.weight
        self._rows: FileRows | None = None

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        """See `Embedding`."""
        indices = indices + self.offset if self.offset else indices
        if isinstance(self.table, QuantizedWeight):
            return self.table.rows(indices).dequantized(self.dtype)
        if isinstance(self.table, PackedWeight):
            return self.table.floats_at(indices, self.dtype)
        if self._rows is None or self._rows.table is not self.table:
            self._rows = FileRows(self.table)
        return self._rows.at(indices.flatten()).view(*indices.shape, -1).to(self.dtype)


def stored_parts(model: nn.Module) -> list[Stored | PackedWeight]:
    """What its quantised layers hold; what two share comes once."""
    parts: list[Stored | PackedWeight] = []
    for module in model.modules():
        if isinstance(module, QuantizedLinear):
            parts += [part.weight if isinstance(part, CpuLinear) else part for part in module.parts]
        elif isinstance(module, StoredEmbedding):
            parts.append(module.table)
    return list({id(part): part for part in parts}.values())


def _num_rows(part: Stored | PackedWeight | CpuLinear) -> int:
    return len(part) if isinstance(part, torch.Tensor) else part.out_features


def _joined(parts: list[Stored | PackedWeight]) -> list[Stored | PackedWeight]:
    """Neighbours of one form become one part; packed ones have all of their form."""
    joined: list[Stored | PackedWeight] = []
    alike: list[Stored | PackedWeight] = []
    for part in parts:
        if alike and _form(part) != _form(alike[0]):
            joined.append(_one(alike))
            alike = []
        alike.append(part)
    return [*joined, _one(alike)]


def _form(part: Stored | PackedWeight) -> object:
    if isinstance(part, PackedWeight):
        return id(part)
    return part.dtype if isinstance(part, torch.Tensor) else form(part)


def _one(parts: list[Stored | PackedWeight]) -> Stored | PackedWeight:
    """Of one form each."""
    if len(parts) == 1:
        return parts[0]
    few = [part for part in parts if isinstance(part, QuantizedWeight)]
    return stacked(few) if few else torch.cat([part for part in parts if isinstance(part, torch.Tensor)])

"""A part of a tensor: spans of one of its dimensions. Knows no model and no file."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from pagedchat.ops.quantized.weight import QuantizedWeight, stacked

Stored = torch.Tensor | QuantizedWeight
Span = tuple[int, int]
"""The first one, and how many."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Spans of a dimension, one behind the other, then zeros up to a length."""

    dim: int
    whole: int
    """How long it is in the whole tensor."""
    spans: tuple[Span, ...]
    length: int | None = None

    def fits(self, tensor: Stored) -> bool:
        """Whether it can be cut so."""
        shape = tensor.shape
        return self.dim < len(shape) and shape[self.dim] == self.whole

    def of(self, tensor: Stored) -> Stored:
        """The part of a tensor that fits; a view if there can be one, so that no more is read from its file."""
        parts = [_span(tensor, self.dim, start, count) for start, count in self.spans]
        missing = 0 if self.length is None else self.length - sum(count for _, count in self.spans)
        if missing:
            parts.append(_zeros(tensor, self.dim, missing))
        return parts[0] if len(parts) == 1 else _joined(parts, self.dim)


class Nothing:
    """Zeros in the place of a tensor: others have it."""

    def fits(self, tensor: Stored) -> bool:
        """See `Cut`."""
        return isinstance(tensor, torch.Tensor)

    def of(self, tensor: Stored) -> Stored:
        """See `Cut`."""
        return torch.zeros_like(tensor) if isinstance(tensor, torch.Tensor) else tensor


NOTHING = Nothing()


def evenly(dim: int, own: int, whole: int, rank: int) -> Cut:
    """Of parts that are all as long, the one of a rank."""
    return Cut(dim, whole, ((rank * own, own),))


def side_by_side(cut: Cut) -> Cut:
    """Of two tensors that are cut alike and lie one behind the other."""
    return Cut(cut.dim, 2 * cut.whole, (*cut.spans, *shifted(cut, cut.whole).spans))


def shifted(cut: Cut, by: int) -> Cut:
    """The same spans further on."""
    return replace(cut, spans=tuple((start + by, count) for start, count in cut.spans))


def by_outputs(name: str, cut: Cut, transposed: bool = False) -> Iterator[tuple[str, Cut]]:
    """A product of which a rank has some of the outputs, and what is added to these."""
    yield f"{name}.weight", replace(cut, dim=1) if transposed else cut
    yield f"{name}.bias", cut


def by_inputs(name: str, cut: Cut, rank: int, transposed: bool = False) -> Iterator[tuple[str, Cut | Nothing]]:
    """A product of which a rank has some of the inputs; the first one adds what is added to the sum of all."""
    yield f"{name}.weight", cut if transposed else replace(cut, dim=1)
    if rank:
        yield f"{name}.bias", NOTHING


def _span(tensor: Stored, dim: int, start: int, count: int) -> Stored:
    if isinstance(tensor, torch.Tensor):
        return tensor.narrow(dim, start, count)
    stop = start + count
    return tensor.rows(slice(start, stop)) if dim == 0 else tensor.columns(start, stop)


def _zeros(tensor: Stored, dim: int, count: int) -> Stored:
    """As many rows or columns of what a tensor has."""
    if isinstance(tensor, torch.Tensor):
        shape = list(tensor.shape)
        shape[dim] = count
        return tensor.new_zeros(shape)
    return tensor.rows(torch.zeros(count, dtype=torch.int64)).of_nothing()


def _joined(parts: list[Stored], dim: int) -> Stored:
    few = [part for part in parts if isinstance(part, QuantizedWeight)]
    if not few:
        return torch.cat([part for part in parts if isinstance(part, torch.Tensor)], dim=dim)
    if dim == 0:
        return stacked(few)
    raise ValueError("inputs of a product are cut in one piece")

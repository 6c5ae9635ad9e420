"""The tensors of a checkpoint on the way to their places in a model. Knows names, orders and joins; no files."""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import torch
from torch import nn

from pagedchat.errors import InvalidValueError, ModelError
from pagedchat.layers.quantized_linear import Stored
from pagedchat.layers.weights import Places
from pagedchat.models.checkpoint_tensors import check_complete
from pagedchat.models.native_model import NativeModel
from pagedchat.models.parts.cut import Cut, Nothing
from pagedchat.models.quantized.mxfp4 import Packed, PackedExpert
from pagedchat.models.quantized.stacked import Stacked
from pagedchat.models.staged_copy import StagedCopies
from pagedchat.ops.quantized.weight import QuantizedWeight
from pagedchat.units import format_size

log = logging.getLogger(__name__)

Read = Stored | Stacked | Packed
"""What a checkpoint may have under a name."""


class Filling:
    """Brings the tensors of a checkpoint to their places, whatever their order.

    Args:
        name: of the model, for messages.
        model: without values.
        copies: brings a tensor to its place.
        on_progress: told of `(done, total)` tensors.
    """

    def __init__(
        self, name: str, model: NativeModel, copies: StagedCopies, on_progress: Callable[[int, int], None]
    ) -> None:
        self._name = name
        self._model = model
        self._copies = copies
        self._places: Places = model.places()
        self._orders = model.orders()
        self._cuts = model.cuts()
        self._joined = model.joined()
        self._missing = set(self._places)
        self._mismatched: list[str] = []
        self._on_progress = on_progress

    def fill(self, tensors: Iterator[tuple[str, Read]]) -> None:
        """Take what there is a place for; the rest is of no use."""
        tied_head = None
        for given, stored in tensors:
            name = self._full_name(given)
            if isinstance(stored, Packed):
                self._put_packed(name, stored)
                continue
            tensor = self._part_of(name, stored)
            if tensor is not None and name in self._joined:
                self._put_parts(name, tensor)
            elif isinstance(tensor, torch.Tensor | QuantizedWeight):
                if name in self._places:
                    self._put(name, self._as_row(name, tensor))
                elif name == self._model.head_name:
                    tied_head = tensor
            elif name in self._places or name in self._joined or name == self._model.head_name:
                self._missing.difference_update(self._joined.get(name, [name]))
                self._mismatched.append(name)
        self._settle_head(tied_head)
        check_complete(self._name, self._missing, self._mismatched)

    def _full_name(self, given: str) -> str:
        """A body saved without its head lacks the beginning of every name."""
        names = (prefix + given for prefix in self._model.prefixes)
        return next((name for name in names if name in self._places or name in self._joined), given)

    def _as_row(self, name: str, tensor: Stored) -> Stored:
        """Some checkpoints have a matrix of one row as a vector."""
        is_row = isinstance(tensor, torch.Tensor) and self._places[name].shape == (1, *tensor.shape)
        return tensor.view(1, -1) if is_row and isinstance(tensor, torch.Tensor) else tensor

    def _part_of(self, name: str, tensor: Stored | Stacked) -> Stored | Stacked | None:
        """What of a tensor is meant for this part of the model, in its order; None if it has another shape."""
        cut = self._cuts.get(name)
        if cut is None:
            return tensor
        if isinstance(tensor, Stacked):
            return self._part_of_each(name, tensor, cut) if isinstance(cut, Cut) else None
        if not cut.fits(tensor):
            return None
        order = self._orders.pop(name, None)
        if order is None:
            return self._cut(name, cut, tensor)
        if isinstance(tensor, torch.Tensor) and len(order) != len(tensor):  # one element in each of these rows
            return cut.of(ordered(tensor, order))
        rows = cut.of(order)  # so that no others are read
        assert isinstance(rows, torch.Tensor)  # noqa: S101 - as it was
        return tensor[rows] if isinstance(tensor, torch.Tensor) else tensor.rows(rows)

    def _part_of_each(self, name: str, tensor: Stacked, cut: Cut) -> Stacked | None:
        if not 0 < cut.dim < len(tensor.shape) or tensor.shape[cut.dim] != cut.whole:
            return None
        of_matrix = replace(cut, dim=cut.dim - 1)

        def part(matrix: QuantizedWeight) -> QuantizedWeight:
            found = self._cut(name, of_matrix, matrix)
            assert isinstance(found, QuantizedWeight)  # noqa: S101 - as it was
            return found

        return tensor.changed(part, cut.dim, sum(count for _, count in cut.spans))

    def _cut(self, name: str, cut: Cut | Nothing, tensor: Stored) -> Stored:
        try:
            return cut.of(tensor)
        except ValueError as error:
            raise InvalidValueError(
                f"tensor_parallel_size does not divide the weights of {self._name} as they are stored: "
                f"in {name}, {error}.",
                "Choose a smaller --tensor-parallel-size, or a checkpoint in other groups.",
            ) from error

    def _put_parts(self, name: str, tensor: Stored | Stacked) -> None:
        """Matrix by matrix, and in each one part below the other, as many rows as its place has."""
        parts, shape = self._joined[name], tuple(tensor.shape)
        if len(shape) == 2:
            shape = (1, *shape)
        each = len(parts) // max(1, shape[0])
        groups = [parts[start : start + each] for start in range(0, len(parts), each)] if each else []
        heights = {sum(len(self._places[part]) for part in group) for group in groups}
        if len(shape) != 3 or len(groups) != shape[0] or heights != {shape[1]}:
            self._missing.difference_update(parts)
            self._mismatched.append(name)
            return
        for group, matrix in zip(groups, _matrices(tensor), strict=True):
            start = 0
            for part in group:
                rows = slice(start, start + len(self._places[part]))
                self._put(part, matrix[rows] if isinstance(matrix, torch.Tensor) else matrix.rows(rows))
                start = rows.stop

    def _put_packed(self, name: str, tensor: Packed) -> None:
        """Expert by expert; what places have as columns are rows there."""
        parts, given = self._joined.get(name, []), self._cuts.get(name)
        if not parts:
            return
        cut = given if isinstance(given, Cut) else None
        if not tensor.is_whole or len(tensor.blocks) != len(parts) or not (cut is None or tensor.fits(cut)):
            self._missing.difference_update(parts)
            self._mismatched.append(name)
            return
        for part, expert in zip(parts, tensor.experts(cut), strict=True):
            self._put_expert(part, expert)
        places = [self._places[part] for part in parts]
        num_bytes = sum(place.numel() * place.element_size() for place in places if not place.is_meta)
        if num_bytes:
            log.info("%s is stored in MXFP4 and takes %s unpacked", name, format_size(num_bytes))

    def _put_expert(self, name: str, expert: PackedExpert) -> None:
        self._put(name, expert.floats(self._unpacking_device(self._places[name])))

    def _unpacking_device(self, place: torch.Tensor) -> torch.device:
        """Where few bits become floats on their way to a place."""
        return place.device

    def _put(self, name: str, stored: Stored) -> None:
        self._missing.discard(name)
        tensor, place = as_floats(stored), self._places[name]
        if tensor.shape == _in_turns(place.shape):
            tensor = tensor.view(place.shape)
        if self._fits(name, tensor):
            self._copies.copy(place, ordered(tensor, self._orders.get(name)))
            self._tell()

    def _fits(self, name: str, tensor: torch.Tensor) -> bool:
        """Whether it has the shape of its place; if not, that is kept for the end."""
        if tensor.shape != self._places[name].shape:
            self._mismatched.append(name)
            return False
        if not tensor.is_floating_point():
            raise ModelError(
                f"The weights of {self._name} are quantised ({name} is {tensor.dtype}), and its config.json does "
                "not say how.",
                "Choose the model in float32, float16 or bfloat16.",
            )
        return True

    def _tell(self) -> None:
        self._on_progress(len(self._places) - len(self._missing), len(self._places))

    def _settle_head(self, stored: Stored | None) -> None:
        """A checkpoint may bring a head that its config calls the token embedding.

        It may be the embedding once more (all pickled checkpoints have it twice), the only copy of it, or, where
        the config is wrong, a head of its own.
        """
        if stored is None:
            return
        model, tensor = self._model, as_floats(stored)
        if model.embedding_name in self._missing:
            self._put(model.embedding_name, tensor)
        elif tensor.shape != model.embedding.weight.shape:
            self._mismatched.append(model.head_name)
        else:
            head = tensor.to(model.embedding.weight)
            if not torch.equal(head, model.embedding.weight):
                model.head.weight = nn.Parameter(head.clone(), requires_grad=False)


def _matrices(tensor: Stored | Stacked) -> Iterable[Stored]:
    """Of a tensor of three dimensions; one of two is one."""
    return tensor if isinstance(tensor, Stacked) or len(tensor.shape) == 3 else [tensor]  # type: ignore[return-value]


def _in_turns(shape: torch.Size) -> tuple[int, ...] | None:
    """How a checkpoint has what goes to a place of three dimensions: the last two are one there, in which elements
    take turns that lie apart here."""
    return (shape[0], shape[1] * shape[2]) if len(shape) == 3 else None


def ordered(tensor: torch.Tensor, order: torch.Tensor | None) -> torch.Tensor:
    """With its rows in another order; a tensor of as many elements has one in each row."""
    return tensor if order is None else tensor.reshape(len(order), -1)[order].view(tensor.shape)


def as_floats(stored: Stored) -> torch.Tensor:
    """A tensor as it is; few bits as what they mean, in float32."""
    return stored.dequantized() if isinstance(stored, QuantizedWeight) else stored

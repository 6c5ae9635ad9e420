"""The tensors of a checkpoint on the way to their places in a model. Knows names, orders and joins; no files."""

import logging
from collections.abc import Callable, Iterator

import torch
from torch import nn

from pagedchat.errors import InvalidValueError, ModelError
from pagedchat.layers.quantized_linear import Stored
from pagedchat.layers.weights import Places
from pagedchat.models.checkpoint_tensors import check_complete
from pagedchat.models.native_model import NativeModel
from pagedchat.models.parts.cut import Cut
from pagedchat.models.quantized.mxfp4 import Packed
from pagedchat.models.staged_copy import StagedCopies
from pagedchat.ops.quantized.weight import QuantizedWeight
from pagedchat.units import format_size

log = logging.getLogger(__name__)


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

    def fill(self, tensors: Iterator[tuple[str, Stored | Packed]]) -> None:
        """Take what there is a place for; the rest is of no use."""
        tied_head = None
        for given, stored in tensors:
            name = self._full_name(given)
            if isinstance(stored, Packed):
                self._put_packed(name, stored)
                continue
            tensor = self._part_of(name, stored)
            if tensor is None:
                self._missing.discard(name)
                self._mismatched.append(name)
            elif name in self._places:
                self._put(name, tensor)
            elif name in self._joined:
                self._put_parts(name, as_floats(tensor))
            elif name == self._model.head_name:
                tied_head = tensor
        self._settle_head(tied_head)
        check_complete(self._name, self._missing, self._mismatched)

    def _full_name(self, given: str) -> str:
        """A body saved without its head lacks the beginning of every name."""
        names = (prefix + given for prefix in self._model.prefixes)
        return next((name for name in names if name in self._places or name in self._joined), given)

    def _part_of(self, name: str, tensor: Stored) -> Stored | None:
        """What of a tensor is meant for this part of the model, in its order; None if it has another shape."""
        cut = self._cuts.get(name)
        if cut is None:
            return tensor
        if not cut.fits(tensor):
            return None
        order = self._orders.pop(name, None)
        if order is None:
            try:
                return cut.of(tensor)
            except ValueError as error:
                raise InvalidValueError(
                    f"tensor_parallel_size does not divide the weights of {self._name} as they are stored: "
                    f"in {name}, {error}.",
                    "Choose a smaller --tensor-parallel-size, or a checkpoint in other groups.",
                ) from error
        if isinstance(tensor, torch.Tensor) and len(order) != len(tensor):  # one element in each of these rows
            return cut.of(ordered(tensor, order))
        rows = cut.of(order)  # so that no others are read
        assert isinstance(rows, torch.Tensor)  # noqa: S101 - as it was
        return tensor[rows] if isinstance(tensor, torch.Tensor) else tensor.rows(rows)

    def _put_parts(self, name: str, tensor: torch.Tensor) -> None:
        """One after the other, each as many rows as its place has."""
        parts = self._joined[name]
        heights = [len(self._places[part]) for part in parts]
        rows = tensor.flatten(0, -2)
        if len(rows) != sum(heights):
            self._missing.difference_update(parts)
            self._mismatched.append(name)
            return
        for part, its_rows in zip(parts, torch.split(rows, heights), strict=True):
            self._put(part, its_rows)

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
        places = [self._places[part] for part in parts]
        for part, its_columns in zip(parts, tensor.unpacked(self._unpacking_device(places[0]), cut), strict=True):
            self._put(part, its_columns)
        num_bytes = sum(place.numel() * place.element_size() for place in places if not place.is_meta)
        if num_bytes:
            log.info("%s is stored in MXFP4 and takes %s unpacked", name, format_size(num_bytes))

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

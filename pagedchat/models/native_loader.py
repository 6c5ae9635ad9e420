"""A local checkpoint -> a model of our own modules: every tensor goes straight from its file to its place."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from pagedchat.errors import ModelError
from pagedchat.layers.weights import Places
from pagedchat.models.checkpoint_files import check_room
from pagedchat.models.checkpoint_tensors import check_complete, read_tensors
from pagedchat.models.native import NativeConfig, build
from pagedchat.models.native_model import NativeModel
from pagedchat.models.quantized.mxfp4 import Packed, with_packed
from pagedchat.models.staged_copy import StagedCopies
from pagedchat.units import format_size

log = logging.getLogger(__name__)


def load_native(
    name: str,
    config: NativeConfig,
    files: list[Path],
    *,
    dtype: torch.dtype,
    device: torch.device,
    on_progress: Callable[[int, int], None],
) -> NativeModel:
    """Build the model and read its weights.

    Args:
        name: of the model, for messages.
        config: its shape.
        files: with the weights.
        dtype, device: what the weights are turned into, and where they go.
        on_progress: told of `(done, total)` tensors.

    Raises:
        ModelError: weights missing, quantised or of another shape; what a damaged file raises goes through.
    """
    model = _built(name, config, files, dtype, device)
    copies = StagedCopies(device)
    _Filling(name, model, copies, on_progress).fill(read_tensors(files))
    copies.finish()
    return model.to(device)  # what is always worked out on the CPU


def _built(
    name: str, config: NativeConfig, files: list[Path], dtype: torch.dtype, device: torch.device
) -> NativeModel:
    """The model without values. Where there is no memory for it, the config may be at fault."""
    try:
        with _new_tensors(dtype, device):
            return build(config).eval()
    except (RuntimeError, MemoryError):
        with _new_tensors(dtype, torch.device("meta")):
            check_room(name, files, sum(parameter.numel() for parameter in build(config).parameters()))
        raise


@contextmanager
def _new_tensors(dtype: torch.dtype, device: torch.device) -> Iterator[None]:
    """Inside, tensors are of this type and on this device if nothing else is said."""
    previous = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with device:
            yield
    finally:
        torch.set_default_dtype(previous)


class _Filling:
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
        self._joined = model.joined()
        self._missing = set(self._places)
        self._mismatched: list[str] = []
        self._on_progress = on_progress

    def fill(self, tensors: Iterator[tuple[str, torch.Tensor]]) -> None:
        """Take what there is a place for; the rest is of no use."""
        tied_head = None
        for given, tensor in with_packed(tensors):
            name = self._full_name(given)
            if isinstance(tensor, Packed):
                self._put_packed(name, tensor)
            elif name in self._places:
                self._put(name, tensor)
            elif name in self._joined:
                self._put_parts(name, tensor)
            elif name == self._model.head_name:
                tied_head = tensor
        if tied_head is not None:
            self._settle_head(tied_head)
        check_complete(self._name, self._missing, self._mismatched)

    def _full_name(self, given: str) -> str:
        """A body saved without its head lacks the beginning of every name."""
        names = (prefix + given for prefix in self._model.prefixes)
        return next((name for name in names if name in self._places or name in self._joined), given)

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
        parts = self._joined.get(name, [])
        if not parts:
            return
        if not tensor.is_whole or len(tensor.blocks) != len(parts):
            self._missing.difference_update(parts)
            self._mismatched.append(name)
            return
        places = [self._places[part] for part in parts]
        for part, its_rows in zip(parts, tensor.unpacked(places[0].device), strict=True):
            self._put(part, its_rows.T)
        log.info("%s is stored in MXFP4 and takes %s unpacked", name, format_size(sum(map(_num_bytes, places))))

    def _put(self, name: str, tensor: torch.Tensor) -> None:
        self._missing.discard(name)
        place = self._places[name]
        if tensor.shape == _in_turns(place.shape):
            tensor = tensor.view(place.shape)
        if tensor.shape != place.shape:
            self._mismatched.append(name)
            return
        if not tensor.is_floating_point():
            raise ModelError(
                f"The weights of {self._name} are quantised ({name} is {tensor.dtype}), which is not read.",
                "Choose the model in float32, float16 or bfloat16.",
            )
        self._copies.copy(place, _ordered(tensor, self._orders.get(name)))
        self._on_progress(len(self._places) - len(self._missing), len(self._places))

    def _settle_head(self, tensor: torch.Tensor) -> None:
        """A checkpoint may bring a head that its config calls the token embedding.

        It may be the embedding once more (all pickled checkpoints have it twice), the only copy of it, or, where
        the config is wrong, a head of its own.
        """
        model = self._model
        if model.embedding_name in self._missing:
            self._put(model.embedding_name, tensor)
        elif tensor.shape != model.embedding.weight.shape:
            self._mismatched.append(model.head_name)
        else:
            head = tensor.to(model.embedding.weight)
            if not torch.equal(head, model.embedding.weight):
                model.head.weight = nn.Parameter(head.clone(), requires_grad=False)


def _num_bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _in_turns(shape: torch.Size) -> tuple[int, ...] | None:
    """How a checkpoint has what goes to a place of three dimensions: the last two are one there, in which elements
    take turns that lie apart here."""
    return (shape[0], shape[1] * shape[2]) if len(shape) == 3 else None


def _ordered(tensor: torch.Tensor, order: torch.Tensor | None) -> torch.Tensor:
    """With its rows in another order; a tensor of as many elements has one in each row."""
    return tensor if order is None else tensor.reshape(len(order), -1)[order].view(tensor.shape)

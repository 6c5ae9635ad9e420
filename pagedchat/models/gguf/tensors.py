"""The tensors of a GGUF file, one after the other, mapped and not copied where they are floats; those of three
dimensions in few bits matrix by matrix. Knows no model."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from pagedchat.errors import ModelError
from pagedchat.models.gguf.blocks import unpack
from pagedchat.models.gguf.header import GgufTensor, read_header
from pagedchat.models.gguf.kinds import KINDS
from pagedchat.models.quantized.stacked import Stacked
from pagedchat.ops.quantized.weight import QuantizedWeight


def read_gguf(path: Path) -> Iterator[tuple[str, torch.Tensor | QuantizedWeight | Stacked, torch.Tensor]]:
    """Name and contents of every tensor, on the CPU, and the bytes of the file that it is made from.

    Raises:
        ModelError: the file is damaged.
    """
    tensors = read_header(path).tensors
    content = _mapped(path)
    for tensor in tensors:
        stored = content[tensor.start : tensor.start + tensor.num_bytes]
        is_stack = len(tensor.shape) == 3 and KINDS[tensor.kind].block_size > 1
        yield tensor.name, (_stack if is_stack else _unpacked)(tensor, stored), stored


def read_tensor(tensor: GgufTensor) -> torch.Tensor | QuantizedWeight:
    """One alone.

    Raises:
        ModelError: it has scales that are none.
    """
    return _unpacked(tensor, _mapped(tensor.file)[tensor.start : tensor.start + tensor.num_bytes])


def _mapped(path: Path) -> torch.Tensor:
    return torch.from_file(str(path), shared=False, size=path.stat().st_size, dtype=torch.uint8)


def _stack(tensor: GgufTensor, content: torch.Tensor) -> Stacked:
    """Matrix by matrix; each is some of the bytes."""
    count, *shape = tensor.shape
    matrix = replace(tensor, shape=tuple(shape))

    def make(number: int) -> QuantizedWeight:
        found = _unpacked(matrix, content.view(count, -1)[number])
        assert isinstance(found, QuantizedWeight)  # noqa: S101 - of a matrix in blocks
        return found

    return Stacked(torch.Size(tensor.shape), make)


def _unpacked(tensor: GgufTensor, content: torch.Tensor) -> torch.Tensor | QuantizedWeight:
    try:
        return unpack(tensor.kind, content, tensor.shape)
    except ValueError as error:
        raise ModelError(
            f"{tensor.file.name} is damaged: in {tensor.name[:60]}, {error}.", "Download the file again."
        ) from None

"""The tensors of a checkpoint, one after the other, mapped from their files and not copied.

Runs no code from the files.
"""

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import safe_open


def read_tensors(files: list[Path]) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and contents of every tensor, on the CPU; its memory is the file's, read when it is used.

    Args:
        files: `.safetensors` or `.bin`.
    """
    for path in files:
        yield from _safe_tensors(path) if path.suffix == ".safetensors" else _pickled(path).items()


def _safe_tensors(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 - it is no mapping
            yield name, file.get_tensor(name)


def _pickled(path: Path) -> Mapping[str, torch.Tensor]:
    """Files from before torch 1.6 are no zip archives and cannot be mapped."""
    tensors: Mapping[str, torch.Tensor] = torch.load(
        path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
    )
    return tensors

"""The tensors of a checkpoint, one after the other, mapped from their files and not copied.

And what to say where some are missing, of another shape, or in a file that cannot be read. Runs no code from the
files.
"""

import zipfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import torch
from safetensors import safe_open

from pagedchat.errors import ModelError, first_line
from pagedchat.models.checkpoint_files import GGUF, OTHER_CONFIG, damaged
from pagedchat.models.gguf.tensors import read_gguf
from pagedchat.models.pickled_names import foreign_names
from pagedchat.models.quantized.stacked import Stacked
from pagedchat.ops.common.pages import FilePages
from pagedchat.ops.quantized.weight import QuantizedWeight


def read_tensors(files: list[Path]) -> Iterator[tuple[str, torch.Tensor | QuantizedWeight | Stacked]]:
    """Name and contents of every tensor, on the CPU; its memory is the file's, read when it is used.

    Args:
        files: `.safetensors`, `.bin` or `.gguf`.
    """
    pages = FilePages()
    for path in files:
        if path.suffix == ".safetensors":
            yield from _safe_tensors(path, pages)
        elif path.suffix.lower() == GGUF:
            for name, tensor, content in read_gguf(path):
                yield name, tensor
                pages.forget(content)
        else:
            yield from _pickled(path).items()


def check_complete(name: str, missing: Collection[str], mismatched: Collection[str]) -> None:
    """Refuse a model with gaps; no one wants to chat with random numbers.

    Args:
        name: of the model.
        missing: tensors that the checkpoint lacks.
        mismatched: tensors whose shape is not what the config says.

    Raises:
        ModelError: there are any.
    """
    if missing:
        raise ModelError(f"The weights of {name} lack {_some(missing)}.", OTHER_CONFIG)
    if mismatched:
        raise ModelError(
            f"The weights of {name} have other shapes than its config says: {_some(mismatched)}.", OTHER_CONFIG
        )


def explain(name: str, files: list[Path], error: Exception) -> ModelError:
    """What to tell people about an error that came up while `files` were read; itself if that says it already."""
    for path in files:
        if path.suffix == ".bin" and not _readable(path):
            asked = foreign_names(path)
            return _runs_code(path, asked) if asked else damaged(path)
    if isinstance(error, ModelError):
        return error
    return ModelError(f"The weights of {name} cannot be loaded: {first_line(error)}.", "Download the model again.")


def _safe_tensors(path: Path, pages: FilePages) -> Iterator[tuple[str, torch.Tensor]]:
    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 - it is no mapping
            tensor = file.get_tensor(name)
            yield name, tensor
            pages.forget(tensor)


def _pickled(path: Path) -> Mapping[str, torch.Tensor]:
    """Files from before torch 1.6 are no zip archives and cannot be mapped."""
    tensors: Mapping[str, torch.Tensor] = torch.load(
        path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
    )
    return tensors


def _runs_code(path: Path, asked: list[str]) -> ModelError:
    return ModelError(
        f"{path.name} in {path.parent} is more than weights: unpickled, it would use "
        f"{', '.join(name[:60] for name in asked[:3])}. Nothing of it was run.",
        "It may be an attack; take the model from somebody you trust, best as safetensors.",
    )


def _some(names: Collection[str]) -> str:
    first = min(names)
    return first if len(names) == 1 else f"{first} and {len(names) - 1} more"


def _readable(path: Path) -> bool:
    try:
        torch.load(path, map_location="meta", weights_only=True)
    except Exception:  # torch raises many kinds for the many ways in which a file can be damaged
        return False
    return True

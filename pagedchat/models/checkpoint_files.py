"""Which files of a checkpoint hold its weights, and whether they are whole. Knows file names, no tensors."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from pagedchat.errors import ModelError
from pagedchat.gguf_names import part_name
from pagedchat.models.raw_config import read_json
from pagedchat.units import format_size

SINGLE = ("model.safetensors", "pytorch_model.bin")
"""Weights in one file, in the order of preference."""
INDEX = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
"""Weights in several files, listed by one of these."""
GGUF = ".gguf"
"""How a file's name ends that is a whole checkpoint by itself, or a part of one."""
MOST_PARTS = 1000
"""Of a GGUF model: the largest ones that there are have some hundred."""
OTHER_CONFIG = "The checkpoint does not belong to its config.json; download the model again."
"""What to do about weights that are not those of the config."""


def preferred_weights(names: Collection[str]) -> list[str]:
    """Of the files in a checkpoint, those with weights: safetensors if there are any, else `.bin`.

    An index comes before the files that it lists; empty where there are no weights.
    """
    for single, index in zip(SINGLE, INDEX, strict=True):
        if single in names:
            return [single]
        if index in names:
            suffix = Path(single).suffix
            stem = Path(single).stem
            return [index, *sorted(name for name in names if name.startswith(f"{stem}-") and name.endswith(suffix))]
    return []


def weight_files(name: str, folder: Path) -> list[Path]:
    """The files with the weights of a local checkpoint, all there.

    Args:
        name: of the model, for messages.
        folder: of the checkpoint, or the GGUF file that it is, or a part of one.

    Raises:
        ModelError: no weights, or a part of them is missing.
    """
    if folder.suffix.lower() == GGUF and folder.is_file():
        return _gguf_parts(name, folder)
    present = {path.name for path in folder.iterdir()}
    names = preferred_weights(present)
    if not names:
        raise ModelError(
            f"{name} has no weights: neither {SINGLE[0]} nor {SINGLE[1]} is there.", "Download the model again."
        )
    if names[0] in INDEX:
        names = _listed(name, folder / names[0])
        missing = [part for part in names if part not in present]
        if missing:
            raise ModelError(f"{name} lacks {missing[0]}, a part of its weights.", "Download the model again.")
    return [folder / part for part in names]


def _gguf_parts(name: str, path: Path) -> list[Path]:
    """In order; a file that is not named as a part is the only one."""
    named = part_name(path.name)
    if named is None:
        return [path]
    if named.num_parts > MOST_PARTS:
        raise ModelError(
            f"{name} is one of {named.num_parts:,} parts by its name, of which at most {MOST_PARTS:,} are read.",
            "Put them together with llama-gguf-split --merge.",
        )
    parts = [path.with_name(named.other(number)) for number in range(1, named.num_parts + 1)]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelError(
            f"{name} lacks {missing[0]}{more} of its {named.num_parts} parts.",
            "Download what is missing beside it.",
        )
    return parts


def check_whole(name: str, files: list[Path], num_layers: int) -> None:
    """Refuse safetensors files whose headers do not agree with their sizes, or that have fewer tensors than layers.

    Args:
        name: of the model, for messages.
        files: all of a checkpoint; others than safetensors show what they are when they are read.
        num_layers: that the config says the model has.

    Raises:
        ModelError: a file is cut short or damaged, or belongs to another config.
    """
    counts = [_num_tensors(path) for path in files if path.suffix == ".safetensors"]
    if counts and sum(counts) < num_layers:
        raise ModelError(
            f"The config.json of {name} says that it has {num_layers} layers, but its weights are {sum(counts)} "
            "tensors.",
            OTHER_CONFIG,
        )


def check_room(name: str, files: list[Path], num_parameters: int) -> None:
    """Refuse a config that describes more weights than its files can hold, before memory is taken for them.

    Args:
        name: of the model, for messages.
        files: with the weights.
        num_parameters: of the model that the config describes; each takes half a byte at least.

    Raises:
        ModelError: there are too many.
    """
    num_bytes = sum(path.stat().st_size for path in files)
    if num_parameters > 2 * num_bytes:
        raise ModelError(
            f"The config.json of {name} describes a model of {num_parameters:,} parameters, "
            f"but its weights are {format_size(num_bytes)}.",
            OTHER_CONFIG,
        )


def _num_tensors(path: Path) -> int:
    try:
        with safe_open(path, framework="pt") as file:
            return len(file.keys())
    except (SafetensorError, OSError) as error:
        raise damaged(path) from error


def damaged(path: Path) -> ModelError:
    """The error for a file that cannot be read to its end."""
    return ModelError(f"{path.name} in {path.parent} is cut short or damaged.", "Delete it and download it again.")


def _listed(name: str, index: Path) -> list[str]:
    try:
        weight_map: dict[str, Any] = read_json(index)["weight_map"]
        return sorted(set(weight_map.values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{index.name} of {name} cannot be read.", "Download the model again.") from error

"""A checkpoint with fewer layers: a draft model of the same vocabulary, which can be had of any model untrained.

What the layers that are left out would have added to a token's vector is missing, so it agrees with the whole model
as often as that happens to matter. Knows names of tensors and config.json.
"""

import json
import re
import shutil
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

_LAYER = re.compile(r"(.*\blayers\.)(\d+)(\..*)")
_ADDS = re.compile(r"out_proj|fc2|o_proj|down_proj")
"""What a layer adds to a token's vector comes from these."""
_COUNT = "num_hidden_layers"


def write_shallow(source: Path, folder: Path, layers: list[int]) -> None:
    """Write the checkpoint in `source` with these of its layers, in this order, into an existing `folder`.

    Args:
        source: with `config.json`, one `model.safetensors`, and tensors named `...layers.N...` (OPT, Llama and
            their kin).
        folder: gets the tokenizer's files too.
        layers: numbers of those that are kept.
    """
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, _COUNT: len(layers)}), encoding="utf-8")
    tensors = {}
    with safe_open(source / "model.safetensors", "pt") as file:
        for name in file.keys():  # noqa: SIM118 - not a dict
            kept = _renamed(name, layers)
            if kept is not None:
                tensors[kept] = file.get_tensor(name)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (source / name).exists():
            shutil.copyfile(source / name, folder / name)


def dampen(folder: Path, first: int, share: float) -> None:
    """Have the layers of a checkpoint from the `first` on add a `share` of what they do: so one with random weights
    and the same without them agree about as often as a trained model and a good draft model do."""
    path = folder / "model.safetensors"
    tensors: dict[str, torch.Tensor] = {}
    with safe_open(path, "pt") as file:
        for name in file.keys():  # noqa: SIM118 - not a dict
            match, tensor = _LAYER.fullmatch(name), file.get_tensor(name)
            is_late = match is not None and int(match[2]) >= first
            tensors[name] = tensor * share if is_late and _ADDS.search(name) else tensor
    save_file(tensors, path, metadata={"format": "pt"})


def _renamed(name: str, layers: list[int]) -> str | None:
    """The tensor's name in the shallow checkpoint; None where it belongs to a layer that is left out."""
    match = _LAYER.fullmatch(name)
    if match is None:
        return name
    number = int(match[2])
    return f"{match[1]}{layers.index(number)}{match[3]}" if number in layers else None

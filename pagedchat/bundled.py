"""The model in the box: its name, its size, where it lies, and what an honest program says about it."""

from pathlib import Path

from pagedchat.resources import resource_dir

NAME = "pagedchat-toy"
"""What `--model` calls it; `./pagedchat-toy` is a folder of the user's."""
NUM_PARAMETERS = 14_580_480
"""Of the checkpoint in `assets/model`."""
_NOTE = (
    "pagedchat-toy is a toy of {millions:.0f} million parameters, here so that you can watch an engine work. "
    "It is often wrong. For a real model: pagedchat --model Qwen/Qwen2.5-0.5B-Instruct, or any other id or folder."
)


def folder() -> Path:
    """Where the checkpoint lies.

    Raises:
        FileNotFoundError: the install has no `assets` folder; it is broken.
    """
    return resource_dir("assets") / "model"


def note(model: str) -> str:
    """What is to be said at the start about `model`; nothing about any but the toy."""
    return _NOTE.format(millions=NUM_PARAMETERS / 1e6) if model == NAME else ""

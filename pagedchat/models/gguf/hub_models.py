"""GGUF models of the hub: which of them a name means, of those that are here or of those that a repository has.
Knows names of files; asks nobody and opens none.
"""

from collections.abc import Collection
from pathlib import Path

from pagedchat.errors import ModelError
from pagedchat.gguf_choice import find_gguf, ggufs_in, nearest_names, no_such_gguf
from pagedchat.gguf_names import GgufNames
from pagedchat.hub_cache import files_in, snapshot_of
from pagedchat.hub_names import HubName
from pagedchat.models.checkpoint_files import preferred_weights


def cached_gguf(wanted: HubName, *, loosely: bool = False) -> Path | None:
    """The first file of the model that is meant, if all of it is in the hub's cache.

    Args:
        wanted: a name on the hub.
        loosely: whether a piece of a word is enough for a tag: what is not here may have it as its own.

    Raises:
        ModelError: several of those that are here can be meant.
    """
    snapshot = snapshot_of(wanted.repo)
    files = files_in(snapshot) if snapshot is not None else []
    if snapshot is None or _means_checkpoint(wanted, files):
        return None
    model = find_gguf(wanted, _whole(files), loosely=loosely)
    return snapshot / model.files[0] if model is not None else None


def cached_names(wanted: HubName) -> list[str]:
    """What is here of the same repository, as it is to be typed: the nearest GGUF models that are whole."""
    snapshot = snapshot_of(wanted.repo)
    return nearest_names(wanted, _whole(files_in(snapshot))) if snapshot is not None else []


def gguf_on_hub(wanted: HubName, files: Collection[str]) -> GgufNames | None:
    """The model of a repository that is meant; None where that is a checkpoint of transformers, or nothing.

    Args:
        wanted: a name on the hub.
        files: all that the repository has.

    Raises:
        ModelError: there is no such model, not all of it, or several can be meant.
    """
    models, whole = ggufs_in(files), _whole(files)
    if _means_checkpoint(wanted, files) or not (models or wanted.is_gguf):
        return None
    found = find_gguf(wanted, whole)
    if found is not None:
        return found
    if (broken := find_gguf(wanted, models)) is not None:
        raise ModelError(
            f"{wanted.repo} on the hub has only {len(broken.files)} of the {broken.num_parts} parts of "
            f"{broken.files[0]}.",
            "Choose another model.",
        )
    if not models and preferred_weights(files):
        raise ModelError(
            f"{wanted.repo} has no GGUF model.", f"It has a checkpoint, which is called {wanted.repo}."
        )
    raise no_such_gguf(wanted, whole)


def _whole(files: Collection[str]) -> list[GgufNames]:
    """The models of which all parts are among these."""
    return [model for model in ggufs_in(files) if model.is_whole]


def _means_checkpoint(wanted: HubName, files: Collection[str]) -> bool:
    return not wanted.is_gguf and bool(preferred_weights(files))

"""A model's name -> a local folder or GGUF file: the model in the box, a folder, the hub's cache, or a download.

What is here by that name comes first, then what is whole in the hub's cache, then the hub itself.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pagedchat import bundled
from pagedchat.errors import ModelError
from pagedchat.gguf_names import gguf_models, part_name
from pagedchat.hub_names import HubName, hub_name
from pagedchat.models.checkpoint_files import GGUF, preferred_weights
from pagedchat.models.gguf.hub_models import cached_gguf, cached_names

if TYPE_CHECKING:
    from pagedchat.models.hub_download import Need

_MOST_SHOWN = 200
"""Letters of a name in a sentence."""

Report = Callable[[str, int, int], None]
"""Told of `(file, bytes done, bytes in all)`; bytes count over all files."""


def find_model(name: str, report: Report = lambda *_: None) -> Path:
    """The folder with the checkpoint `name`, downloaded if need be; or the GGUF file that it is.

    Of a model that is split over several files it is the first one, whichever is named.

    Args:
        name: a folder, a GGUF file, a hub id such as `facebook/opt-125m`, a GGUF model on the hub
            (`OWNER/NAME:Q4_K_M` or `OWNER/NAME/FILE.gguf`), or the model in the box.
        report: told how a download goes.

    Raises:
        ModelError: there is no such folder or model, or several in it, or the hub cannot be reached.
    """
    folder = _local_folder(name)
    return _from_hub(_on_hub(name), report) if folder is None else _gguf_in(name, folder) or folder


def find_tokenizer(name: str, report: Report = lambda *_: None) -> Path:
    """The folder with the tokenizer of `name`, without weights, or the GGUF file that has it; else as `find_model`.

    Raises:
        ModelError: as for `find_model`.
    """
    return _local_folder(name) or _tokenizer_from_hub(_on_hub(name), report)


def find_config(name: str) -> Path:
    """The folder with the config.json of `name`, or its GGUF file; as `find_model`, without anything else.

    A GGUF model is not fetched for it, since its weights are in the same file.

    Raises:
        ModelError: as for `find_model`, or a GGUF model that is not here.
    """
    folder = _local_folder(name)
    return _config_from_hub(_on_hub(name)) if folder is None else _gguf_in(name, folder) or folder


def _local_folder(name: str) -> Path | None:
    if name == bundled.NAME:
        return _bundled_folder()
    path = Path(name)
    try:
        path = path.expanduser()
        found, is_file = path.is_dir(), path.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # too long, closed to us, the home of nobody, no text
        raise ModelError(
            f"{name[:_MOST_SHOWN]} cannot be looked for: {error!s:.200}.", "Give an existing folder."
        ) from error
    if found:
        return path
    if is_file and path.suffix.lower() == GGUF:
        return _first_part(path)
    if is_file:
        raise ModelError(
            f"{name} is a file, not a folder.", "Give the folder that the checkpoint lies in, or a GGUF file."
        )
    return None


def _on_hub(name: str) -> HubName:
    """What a name that is nothing here means on the hub.

    Raises:
        ModelError: it can be no name there either.
    """
    found = hub_name(name)
    if found is not None:
        return found
    shown = name[:_MOST_SHOWN]
    if name.startswith((".", "/", "~")) or "\\" in name or name.count("/") > 1:
        what = "file" if name.lower().endswith(GGUF) else "folder"
        raise ModelError(
            f"There is no {what} {shown}.", f"Give an existing {what}, or a hub id like facebook/opt-125m."
        )
    raise ModelError(
        f"There is no folder and no model on the hub called {shown}.",
        "Check the spelling: a hub id is like facebook/opt-125m, a GGUF model on it like OWNER/NAME:Q4_K_M.",
    )


def _first_part(path: Path) -> Path:
    """In which the model is described; what is wrong where it is not there is said by whoever reads the others."""
    named = part_name(path.name)
    first = path if named is None else path.with_name(named.other(1))
    return first if first.is_file() else path


def _gguf_in(name: str, folder: Path) -> Path | None:
    """The GGUF model of a folder that has no other weights."""
    try:
        files = [file.name for file in folder.iterdir()]
    except OSError:  # a file, or a folder that is closed to us
        return None
    found = [] if preferred_weights(files) else [model.files[0] for model in gguf_models(files)]
    if len(found) > 1:
        raise ModelError(
            f"There are {len(found)} models in the folder {name}.",
            f"Name one of its files, {found[0]} or {found[1]}{' or another' if len(found) > 2 else ''}.",
        )
    return folder / found[0] if found else None


def _bundled_folder() -> Path:
    try:
        folder = bundled.folder()
    except FileNotFoundError:
        folder = Path()
    if not (folder / "config.json").is_file():
        raise ModelError(
            "This install of pagedchat lacks the model that belongs to it.",
            "Install pagedchat again, or give another model with --model.",
        )
    return folder


def _from_hub(wanted: HubName, report: Report) -> Path:
    if wanted.is_gguf and (here := cached_gguf(wanted)) is not None:
        return here
    from pagedchat.models.hub_download import cached  # noqa: PLC0415 - see there

    here = None if wanted.is_gguf else cached(wanted.repo) or cached_gguf(wanted)
    return here or _downloaded(wanted, report, "model")


def _tokenizer_from_hub(wanted: HubName, report: Report) -> Path:
    return cached_gguf(wanted) or _downloaded(wanted, report, "tokenizer")


def _config_from_hub(wanted: HubName) -> Path:
    if (here := cached_gguf(wanted)) is not None:
        return here
    from pagedchat.models.hub_download import cached_config  # noqa: PLC0415 - see there

    here = None if wanted.is_gguf else cached_config(wanted.repo)
    return here or _downloaded(wanted, lambda *_: None, "config")


def _downloaded(wanted: HubName, report: Report, need: "Need") -> Path:
    """Out of the cache by a piece of a tag, too, where the hub cannot be asked for what has all of it."""
    from pagedchat.models.hub_download import HubNotReachedError, download  # noqa: PLC0415 - see there

    try:
        return download(wanted, report, need)
    except HubNotReachedError as error:
        if (here := cached_gguf(wanted, loosely=True)) is not None:
            return here
        if names := cached_names(wanted):
            hint = f"Check the network, or take what is here: {', '.join(names)}."
            raise HubNotReachedError(error.message, hint) from error
        raise

"""A model's name -> a local folder or GGUF file: the model in the box, a folder, the hub's cache, or a download."""

from collections.abc import Callable
from pathlib import Path

from pagedchat import bundled
from pagedchat.errors import ModelError
from pagedchat.gguf_names import gguf_models, part_name
from pagedchat.models.checkpoint_files import GGUF, preferred_weights

Report = Callable[[str, int, int], None]
"""Told of `(file, bytes done, bytes in all)`; bytes count over all files."""


def find_model(name: str, report: Report = lambda *_: None) -> Path:
    """The folder with the checkpoint `name`, downloaded if need be; or the GGUF file that it is.

    Of a model that is split over several files it is the first one, whichever is named.

    Args:
        name: a folder, a GGUF file, a hub id such as `facebook/opt-125m`, or the model in the box.
        report: told how a download goes.

    Raises:
        ModelError: there is no such folder or model, or several in it, or the hub cannot be reached.
    """
    folder = _local_folder(name)
    return _from_hub(name, report) if folder is None else _gguf_in(name, folder) or folder


def find_tokenizer(name: str, report: Report = lambda *_: None) -> Path:
    """The folder with the tokenizer of `name`; as `find_model`, without weights.

    Raises:
        ModelError: as for `find_model`.
    """
    return _local_folder(name) or _tokenizer_from_hub(name, report)


def find_config(name: str) -> Path:
    """The folder with the config.json of `name`, or its GGUF file; as `find_model`, without anything else.

    Raises:
        ModelError: as for `find_model`.
    """
    folder = _local_folder(name)
    return _config_from_hub(name) if folder is None else _gguf_in(name, folder) or folder


def _local_folder(name: str) -> Path | None:
    if name == bundled.NAME:
        return _bundled_folder()
    path = Path(name)
    try:
        path = path.expanduser()
        found, is_file = path.is_dir(), path.is_file()
    except (OSError, RuntimeError) as error:  # a name too long, a folder closed to us, the home of nobody
        raise ModelError(
            f"{name:.200} cannot be looked for: {error!s:.200}.", "Give an existing folder."
        ) from error
    if found:
        return path
    if is_file and path.suffix.lower() == GGUF:
        return _first_part(path)
    if is_file:
        raise ModelError(
            f"{name} is a file, not a folder.", "Give the folder that the checkpoint lies in, or a GGUF file."
        )
    if name.startswith((".", "/", "~")) or "\\" in name or name.count("/") > 1:
        what = "file" if path.suffix.lower() == GGUF else "folder"
        raise ModelError(
            f"There is no {what} {name}.", f"Give an existing {what}, or a hub id like facebook/opt-125m."
        )
    return None


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


def _from_hub(name: str, report: Report) -> Path:
    from pagedchat.models.hub_download import cached, download  # noqa: PLC0415 - see there

    return cached(name) or download(name, report, weights=True)


def _tokenizer_from_hub(name: str, report: Report) -> Path:
    from pagedchat.models.hub_download import TOKENIZER_FILES, download  # noqa: PLC0415 - see there

    return download(name, report, TOKENIZER_FILES, weights=False)


def _config_from_hub(name: str) -> Path:
    from pagedchat.models.hub_download import CONFIG_FILES, cached_config, download  # noqa: PLC0415 - see there

    return cached_config(name) or download(name, lambda *_: None, CONFIG_FILES, weights=False)

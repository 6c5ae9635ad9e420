"""Which models this machine has, as `--model` takes them: in the box, in the hub's cache, in folders near by, and
as GGUF files where other programs keep theirs. Looks at names and sizes; opens none of them.
"""

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from pagedchat import bundled
from pagedchat.gguf_choice import ggufs_in, typed_name
from pagedchat.gguf_names import gguf_models
from pagedchat.hub_cache import files_in, hub_cache, repo_of, snapshot_in, user_cache
from pagedchat.hub_names import hub_name

Place = Literal["in the box", "hub's cache", "folder", "GGUF file"]

MOST_ENTRIES = 2000
"""Looked at in one folder: somebody's home may have millions."""
MOST_DEPTH = 3
"""Of folders in folders where other programs keep GGUF files: owner, model, file."""
_WEIGHTS = (".safetensors", ".bin")
_ANY_WEIGHTS = (*_WEIGHTS, ".gguf")


class LocalModel(NamedTuple):
    """One that needs no download."""

    name: str
    """What `--model` takes."""
    place: Place
    num_bytes: int
    """Of its weights."""


def local_models(folder: Path | None = None) -> list[LocalModel]:
    """All that are found, in the box first, then by place and name.

    Args:
        folder: whose checkpoints and GGUF files belong to them; the working folder.
    """
    near = Path.cwd() if folder is None else folder
    found = [*_in_the_box(), *_in_the_hubs_cache(hub_cache()), *_in_folder(near)]
    for kept in _gguf_folders():
        found += _gguf_files(kept, MOST_DEPTH)
    by_name = {model.name: model for model in reversed(found)}
    order = list(Place.__args__)  # type: ignore[attr-defined]
    return sorted(by_name.values(), key=lambda model: (order.index(model.place), model.name.lower()))


def _gguf_folders() -> list[Path]:
    """Where llama.cpp and LM Studio keep what they have fetched."""
    try:
        home = Path.home()
    except RuntimeError:  # nobody's
        return []
    given = os.environ.get("LLAMA_CACHE")
    return [
        Path(given) if given else user_cache() / "llama.cpp",
        home / ".lmstudio" / "models",
        home / ".cache" / "lm-studio" / "models",
    ]


def _in_the_box() -> Iterator[LocalModel]:
    try:
        yield LocalModel(bundled.NAME, "in the box", _weight_bytes(bundled.folder()))
    except FileNotFoundError:
        return


def _in_the_hubs_cache(cache: Path) -> Iterator[LocalModel]:
    for folder in _entries(cache):
        repo, snapshot = repo_of(folder), snapshot_in(folder)
        if repo is not None and snapshot is not None and hub_name(repo) is not None:
            yield from _fetched(repo, snapshot)


def _fetched(repo: str, snapshot: Path) -> Iterator[LocalModel]:
    """A checkpoint, or each of the GGUF models that are whole."""
    if (snapshot / "config.json").is_file() and (size := _weight_bytes(snapshot)):
        yield LocalModel(repo, "hub's cache", size)
    models = [model for model in ggufs_in(files_in(snapshot)) if model.is_whole]
    for model in models:
        size = sum(_size(snapshot / file) for file in model.files)
        yield LocalModel(typed_name(repo, model, models), "hub's cache", size)


def _in_folder(folder: Path) -> Iterator[LocalModel]:
    for entry in (folder, *_entries(folder)):
        if (entry / "config.json").is_file() and (size := _weight_bytes(entry, _ANY_WEIGHTS)):
            yield LocalModel(str(entry), "folder", size)
    yield from _gguf_files(folder, 1)


def _gguf_files(folder: Path, depth: int) -> Iterator[LocalModel]:
    """One for all parts of a model, by the name of the first; none where parts are missing."""
    entries = _entries(folder)
    for files, num_parts in gguf_models(entry.name for entry in entries):
        sizes = [_size(folder / file) for file in files]
        if len(files) == num_parts and (num_parts == 1 or all(sizes)):  # a link may lead nowhere
            yield LocalModel(str(folder / files[0]), "GGUF file", sum(sizes))
    for entry in entries:
        if depth > 1 and not entry.name.lower().endswith(".gguf") and entry.is_dir():
            yield from _gguf_files(entry, depth - 1)


def _weight_bytes(folder: Path, suffixes: tuple[str, ...] = _WEIGHTS) -> int:
    return sum(_size(file) for file in _entries(folder) if file.suffix in suffixes)


def _entries(folder: Path) -> Iterable[Path]:
    """What lies in a folder; nothing where that cannot be read."""
    try:
        return list(islice(folder.iterdir(), MOST_ENTRIES))
    except OSError:
        return []


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0

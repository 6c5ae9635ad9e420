"""Models of the hub: out of its cache if they are whole there, else downloaded with progress.

What is in the cache and whole is used as it is, without asking the hub, so that a model that ran once starts fast
and without a network. The hub's library takes half a second to import, so this module is only imported when a name
is no folder.
"""

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import (  # type: ignore[attr-defined]  # HTTPError: of the HTTP library in use
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)

from pagedchat.errors import ModelError
from pagedchat.gguf_names import GgufNames
from pagedchat.hub_cache import hub_cache
from pagedchat.hub_names import HubName
from pagedchat.models.checkpoint_files import preferred_weights, weight_files
from pagedchat.models.gguf.hub_models import gguf_on_hub
from pagedchat.models.quiet import CountingBar, quiet
from pagedchat.units import format_size

SMALL_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "vocab.txt",
    "tekken.json",
)
"""Fetched before the weights, so that whole weights in the cache mean that everything is there."""

TOKENIZER_FILES = tuple(name for name in SMALL_FILES if name != "generation_config.json")
CONFIG_FILES = ("config.json",)

Report = Callable[[str, int, int], None]
"""Told of `(file, bytes done, bytes in all)`; bytes count over all files."""
Need = Literal["model", "tokenizer", "config"]
"""What of a model is wanted."""


def cached(name: str) -> Path | None:
    """The cached copy if it is whole."""
    try:
        folder = Path(snapshot_download(name, cache_dir=hub_cache(), local_files_only=True))
        weight_files(name, folder)
    except (LocalEntryNotFoundError, HFValidationError, ModelError):
        return None
    return folder if (folder / "config.json").is_file() else None


def cached_config(name: str) -> Path | None:
    """The cached folder with the config alone, at least."""
    try:
        return Path(hf_hub_download(name, CONFIG_FILES[0], cache_dir=hub_cache(), local_files_only=True)).parent
    except (LocalEntryNotFoundError, HFValidationError):
        return None


class HubNotReachedError(ModelError):
    """What is asked for is not here, and nobody can be asked for it."""


def download(wanted: HubName, report: Report, need: Need = "model") -> Path:
    """Fetch what is not there yet, into the hub's cache.

    Args:
        wanted: a name on the hub.
        report: told how it goes.
        need: all of a model, or what its tokenizer or its config is in.

    Returns:
        The folder, or the first file of a GGUF model.

    Raises:
        HubNotReachedError: the hub cannot be reached.
        ModelError: there is no such model, the hub refuses it, or a name can mean several.
    """
    with _in_words(wanted.text), quiet():
        info = HfApi().model_info(wanted.repo, files_metadata=True)
        sizes = {file.rfilename: file.size or 0 for file in info.siblings or []}
        gguf = None if _has_what_it_takes(wanted, sizes, need) else gguf_on_hub(wanted, sizes)
        if gguf is not None:
            return _fetch(wanted.repo, _gguf_files(wanted, gguf, sizes, need), sizes, report)[0]
        return _fetch(wanted.repo, _checkpoint_files(wanted, sizes, need), sizes, report)[-1].parent


@contextmanager
def _in_words(name: str) -> Iterator[None]:
    """What goes wrong inside is said of a model of this name."""
    try:
        yield
    except GatedRepoError as error:
        raise ModelError(
            f"{name} is only for those who accepted its terms.",
            "Accept them on huggingface.co and run `hf auth login`.",
        ) from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise ModelError(
            f"There is no folder and no model on the hub called {name}.",
            "Check the spelling; if the model is private, run `hf auth login` first.",
        ) from error
    except HfHubHTTPError as error:
        raise ModelError(f"The model hub refused {name}: {error}", "Try again later.") from error
    except (HTTPError, OSError, EntryNotFoundError) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ModelError(
                f"The disk is full: there is no room for {name} in {hub_cache()}.",
                "Make room; what is there of it stays, and the rest is fetched the next time.",
            ) from error
        raise HubNotReachedError(
            f"{name} is not on this machine, and the model hub cannot be reached.",
            "Check the network, or give the folder of a checkpoint that you have.",
        ) from error


def _has_what_it_takes(wanted: HubName, sizes: Mapping[str, int], need: Need) -> bool:
    """Whether a tokenizer lies there by itself, for which no GGUF model has to be fetched."""
    return (
        need == "tokenizer"
        and not wanted.is_gguf
        and any(file in sizes for file in TOKENIZER_FILES if file not in CONFIG_FILES)
    )


def _gguf_files(wanted: HubName, model: GgufNames, sizes: Mapping[str, int], need: Need) -> Sequence[str]:
    """A model's own file has its config and its tokenizer; of several files the first one has the tokenizer."""
    if need == "config":
        size = format_size(sum(sizes[file] for file in model.files))
        raise ModelError(
            f"What {wanted.text} is like stands in its own file of {size}, which is not on this machine.",
            f"Fetch it first: pagedchat --model {wanted.text}",
        )
    return model.files if need == "model" else model.files[:1]


def _checkpoint_files(wanted: HubName, sizes: Mapping[str, int], need: Need) -> Sequence[str]:
    small = {"model": SMALL_FILES, "tokenizer": TOKENIZER_FILES, "config": CONFIG_FILES}[need]
    files = [file for file in small if file in sizes]
    files += preferred_weights(sizes) if need == "model" else []
    if not files:
        raise ModelError(
            f"{wanted.text} on the hub has no checkpoint of transformers in it, and no GGUF model.",
            "Choose another model.",
        )
    return files


def _fetch(repo: str, files: Sequence[str], sizes: Mapping[str, int], report: Report) -> list[Path]:
    """Where each of them is then."""
    done, total = 0, sum(sizes[file] for file in files)
    found = []
    for file in files:
        bar = _bar_class(lambda count, file=file, done=done: report(file, done + count, total))  # type: ignore[misc]
        found.append(Path(hf_hub_download(repo, file, cache_dir=hub_cache(), tqdm_class=bar)))
        done += sizes[file]
        report(file, done, total)
    return found


def _bar_class(report: Callable[[int], None]) -> Any:
    """A class to be made in place of `tqdm`, which is how the hub's library tells how it goes."""

    class Bar(CountingBar):
        def __init__(self, *_: Any, total: int | None = None, initial: int = 0, **__: Any) -> None:
            super().__init__(lambda done, _total: report(done), total=total)
            self.n = initial

    return Bar

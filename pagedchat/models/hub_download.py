"""Checkpoints of the model hub: out of its cache if they are whole there, else downloaded with progress.

What is in the cache and whole is used as it is, without asking the hub, so that a model that ran once starts fast
and without a network. The hub's library takes half a second to import, so this module is only imported when a name
is no folder.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

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
from pagedchat.models.checkpoint_files import preferred_weights, weight_files
from pagedchat.models.quiet import CountingBar, quiet

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


def cached(name: str) -> Path | None:
    """The cached copy if it is whole."""
    try:
        folder = Path(snapshot_download(name, local_files_only=True))
        weight_files(name, folder)
    except (LocalEntryNotFoundError, HFValidationError, ModelError):
        return None
    return folder if (folder / "config.json").is_file() else None


def cached_config(name: str) -> Path | None:
    """The cached folder with the config alone, at least."""
    try:
        return Path(hf_hub_download(name, CONFIG_FILES[0], local_files_only=True)).parent
    except (LocalEntryNotFoundError, HFValidationError):
        return None


def download(name: str, report: Report, files: Sequence[str] = SMALL_FILES, *, weights: bool) -> Path:
    """Fetch what is not there yet, into the hub's cache.

    Args:
        name: a hub id.
        report: told how it goes.
        files: which ones, as far as there are such.
        weights: whether weights come behind them.

    Raises:
        ModelError: there is no such model, or the hub cannot be reached.
    """
    try:
        with quiet():
            return _fetch(name, report, files, weights)
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
        raise ModelError(
            f"{name} is not on this machine, and the model hub cannot be reached.",
            "Check the network, or give the folder of a checkpoint that you have.",
        ) from error


def _fetch(name: str, report: Report, files: Sequence[str], weights: bool) -> Path:
    info = HfApi().model_info(name, files_metadata=True)
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or []}
    wanted = [file for file in files if file in sizes]
    wanted += preferred_weights(sizes) if weights else []
    if not wanted:
        raise ModelError(f"{name} on the hub has no checkpoint of transformers in it.", "Choose another model.")
    done, total = 0, sum(sizes[file] for file in wanted)
    folder = Path()
    for file in wanted:
        bar = _bar_class(lambda count, file=file, done=done: report(file, done + count, total))  # type: ignore[misc]
        folder = Path(hf_hub_download(name, file, tqdm_class=bar)).parent
        done += sizes[file]
        report(file, done, total)
    return folder


def _bar_class(report: Callable[[int], None]) -> Any:
    """A class to be made in place of `tqdm`, which is how the hub's library tells how it goes."""

    class Bar(CountingBar):
        def __init__(self, *_: Any, total: int | None = None, initial: int = 0, **__: Any) -> None:
            super().__init__(lambda done, _total: report(done), total=total)
            self.n = initial

    return Bar

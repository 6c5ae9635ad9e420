"""Names of models, and of what is in the hub's cache and on the hub: whatever they are, what is found lies in the
cache and is a GGUF model, or the name is refused in words. Asks no hub.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

from hypothesis import strategies as st

from pagedchat.errors import ModelError
from pagedchat.gguf_names import part_name
from pagedchat.hub_names import hub_name
from pagedchat.local_models import local_models
from pagedchat.models.gguf.hub_models import cached_gguf, gguf_on_hub
from pagedchat.models.hub import find_model
from tools.fuzz.target import Target

COMMIT = "c0ffee"
REPO = "a/b"
PIECES = (
    "a", "b", "/", ":", "..", ".", "-", "--", "_", "\\", "~", "Q4_K_M", "q8_0", "UD-", "model", ".gguf", "mmproj",
    "imatrix", "-00001-of-00002", "-00002-of-00002", "hf.co/", "https://huggingface.co/", "C:", " ",
    "\0", "\x1b[2J", "é",
)  # fmt: skip
WORDS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
NAMES = WORDS | st.text(max_size=30) | WORDS.map(f"{REPO}:{{}}".format) | WORDS.map(f"{REPO}/{{}}.gguf".format)
MOST_SAID = 2000
"""Letters: of a name that is refused, and of what it could be."""
Found = TypeVar("Found")
FILES = st.lists(WORDS | WORDS.map("{}.gguf".format), max_size=8, unique=True)


def put_in_cache(cache: Path, repo: str, files: dict[str, bytes]) -> Path:
    """As the hub's library leaves what it has fetched; returns the snapshot."""
    folder = cache / f"models--{repo.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / "main").write_text(COMMIT)
    snapshot = folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True, exist_ok=True)
    for file, data in files.items():
        blob = folder / "blobs" / sha256(file.encode()).hexdigest()
        blob.parent.mkdir(exist_ok=True)
        blob.write_bytes(data)
        (snapshot / file).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / file).symlink_to(blob)
    return snapshot


@contextmanager
def _cache_of(files: Iterable[str]) -> Iterator[Path]:
    """A cache that has some of these, as far as a disk can."""
    before = os.environ.get("HF_HUB_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HF_HUB_CACHE"] = folder
        for file in files:
            if all(piece not in ("", ".", "..") and "\0" not in piece for piece in file.split("/")):
                _put(Path(folder), file)
        try:
            yield Path(folder)
        finally:
            os.environ.pop("HF_HUB_CACHE")
            if before is not None:
                os.environ["HF_HUB_CACHE"] = before


def _put(cache: Path, file: str) -> None:
    try:
        put_in_cache(cache, REPO, {file: b"GGUF"})
    except (OSError, ValueError):  # a folder of this name is there
        return


def _use(example: tuple[str, list[str]]) -> None:
    text, files = example
    with _cache_of(files) as cache, patch("pagedchat.models.hub_download.HfApi", side_effect=OSError):
        path = _found(lambda: find_model(text))
        assert path is None or path.exists()
        assert path is None or os.path.abspath(path).startswith(str(cache / "models--")) or _is_here(text)
    wanted = hub_name(text)
    model = _found(lambda: gguf_on_hub(wanted, files)) if wanted is not None else None
    assert model is None or (model.is_whole and set(model.files) <= set(files))


def _found(find: Callable[[], Found]) -> Found | None:
    """What is found; None where it is refused in words."""
    try:
        return find()
    except ModelError as error:
        assert error.message
        assert error.hint
        assert len(str(error)) < MOST_SAID
        return None


def _is_here(text: str) -> bool:
    """Whether it is a folder or file of its own, beside the cache."""
    return Path(text).expanduser().exists()


def _list(files: list[str]) -> None:
    """What a list has is found by the name that stands there."""
    with _cache_of(files) as cache:
        for model in local_models(cache):
            if model.place == "hub's cache":
                wanted = hub_name(model.name)
                assert wanted is not None
                path = cached_gguf(wanted)
                assert path is not None
                assert (
                    path.stat().st_size * (part.num_parts if (part := part_name(path.name)) else 1)
                    == model.num_bytes
                )


TARGETS = (
    Target("hub models, names", st.tuples(NAMES, FILES), _use),
    Target("hub models, lists", FILES, _list),
)

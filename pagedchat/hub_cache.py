"""What the hub's library has fetched, found without it. Opens no model.

Its cache is laid out as it documents it: `models--OWNER--NAME/refs/main` names a commit, and `snapshots/COMMIT/`
has those files of it that are here, each of them whole.
"""

import os
from pathlib import Path

MOST_FILES = 2000
"""Looked at in one snapshot."""
MOST_FOLDERS = 4
"""One in the other, in which a file of a repository may lie."""
_KIND = "models--"


def hub_cache() -> Path:
    """Where the hub's library keeps what it has fetched; the same variables as it has."""
    if given := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return _expanded(given)
    return (_expanded(home) if (home := os.environ.get("HF_HOME")) else user_cache() / "huggingface") / "hub"


def user_cache() -> Path:
    """Where programs keep what can be fetched again."""
    return _expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache")


def repo_of(folder: Path) -> str | None:
    """Whose files a folder of the cache has, as `OWNER/NAME`; None where they are no model's."""
    return folder.name[len(_KIND) :].replace("--", "/") if folder.name.startswith(_KIND) else None


def snapshot_of(repo: str) -> Path | None:
    """The folder with what is here of a repository; None where nothing is.

    Args:
        repo: `OWNER/NAME`, which must be a name that `hub_names` knows.
    """
    return snapshot_in(hub_cache() / (_KIND + repo.replace("/", "--")))


def snapshot_in(folder: Path) -> Path | None:
    """The files of the commit that `main` stood for when it was fetched."""
    try:
        commit = (folder / "refs" / "main").read_text()[:64].strip()
    except (OSError, UnicodeDecodeError):
        return None
    return folder / "snapshots" / commit if commit.isalnum() else None


def files_in(snapshot: Path) -> list[str]:
    """The files that are here, by their paths in the repository. A link that leads nowhere is none."""
    found: list[str] = []
    for parent, folders, files in os.walk(snapshot):
        below = Path(parent).relative_to(snapshot)
        if len(below.parts) >= MOST_FOLDERS:
            folders.clear()
        folders.sort()
        found += [(below / file).as_posix() for file in sorted(files) if os.path.isfile(os.path.join(parent, file))]
        if len(found) >= MOST_FILES:
            break
    return found[:MOST_FILES]


def _expanded(name: str) -> Path:
    """With what `~` and `$NAME` stand for, where anybody knows it."""
    return Path(os.path.expandvars(os.path.expanduser(name)))

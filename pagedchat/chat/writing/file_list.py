"""The files below a folder, by their paths from there: what can be put into a prompt. Opens none of them."""

import os
import time
from pathlib import Path

MOST_FILES = 5_000
SECONDS = 1.0
_PASSED_OVER = frozenset({"node_modules", "__pycache__", "venv", "dist", "build", "target"})


def list_files(root: Path, seconds: float = SECONDS) -> list[str]:
    """Those at the top first; hidden ones, and folders of what is made or installed, are passed over.

    It ends after so many files or seconds; links to folders are not followed.
    """
    ends = time.monotonic() + seconds
    found: list[str] = []
    folders = [""]
    while folders and len(found) < MOST_FILES and time.monotonic() < ends:
        below: list[str] = []
        for folder in folders:
            names, inner = _in_folder(root, folder)
            found += names
            below += inner
            if len(found) >= MOST_FILES or time.monotonic() >= ends:
                break
        folders = below
    return found[:MOST_FILES]


def _in_folder(root: Path, folder: str) -> tuple[list[str], list[str]]:
    """Files and folders in it, by their names; nothing of a folder that may not be read."""
    files, folders = [], []
    try:
        with os.scandir(root / folder) as entries:
            for entry in entries:
                path = f"{folder}{entry.name}"
                if entry.name.startswith(".") or not path.isprintable():
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders += [] if entry.name in _PASSED_OVER else [f"{path}/"]
                elif entry.is_file():
                    files.append(path)
    except OSError:
        pass
    return sorted(files), sorted(folders)

"""Prompts that were sent, walked with up and down, kept on disk from run to run.

The file is a convenience: whatever goes wrong with it is ignored, and the prompts of this run are still there.
One JSON object a line, appended to, so that several programs may share it.
"""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from platformdirs import user_state_path

from pagedchat.private_files import close_to_others, make_folder, open_to_append, write_file

MAX_PROMPTS = 500
FILE_NAME = "prompt_history.jsonl"


def default_path() -> Path:
    """Where the history lies by the platform's custom (`~/.local/state/pagedchat/` on Linux)."""
    return user_state_path("pagedchat", appauthor=False) / FILE_NAME


class PromptHistory:
    """The last prompts, oldest first. `path=None` keeps them in memory only."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._prompts: list[str] = []
        self._loaded = False

    def __len__(self) -> int:
        self._load()
        return len(self._prompts)

    def __getitem__(self, index: int) -> str:
        self._load()
        return self._prompts[index]

    def add(self, prompt: str) -> None:
        """Remember a prompt, unless it is empty or the same as the one before."""
        self._load()
        if not prompt.strip() or (self._prompts and self._prompts[-1] == prompt):
            return
        self._prompts.append(prompt)
        del self._prompts[:-MAX_PROMPTS]
        self._append(prompt)

    def _load(self) -> None:
        if self._loaded or self._path is None:
            return
        self._loaded = True
        with suppress(OSError):
            close_to_others(self._path)
        lines = _read(self._path)
        self._prompts = list(_parse(lines))[-MAX_PROMPTS:]
        if len(lines) > 2 * MAX_PROMPTS:
            self._rewrite(self._path)

    def _append(self, prompt: str) -> None:
        if self._path is None:
            return
        with suppress(OSError, UnicodeError):
            make_folder(self._path.parent)
            with os.fdopen(open_to_append(self._path), "a", encoding="utf-8") as file:
                file.write(_line(prompt))

    def _rewrite(self, path: Path) -> None:
        with suppress(OSError, UnicodeError):
            fresh = path.with_suffix(".tmp")
            write_file(fresh, "".join(map(_line, self._prompts)).encode())
            fresh.replace(path)


def newest_first(history: PromptHistory) -> list[int]:
    """Places in the history, each prompt once."""
    seen: dict[str, int] = {}
    for index in range(len(history) - 1, -1, -1):
        seen.setdefault(history[index], index)
    return list(seen.values())


def _read(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _line(prompt: str) -> str:
    return json.dumps({"text": prompt}) + "\n"


def _parse(lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        with suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict) and isinstance(entry.get("text"), str):
                yield entry["text"]

"""Where the history lies: in the folder that the platform has for a program's data. Opens nothing."""

from pathlib import Path

FILE_NAME = "history.db"
LOCKS = "open"
"""The folder beside it in which programs that have it open keep their locks."""


def default_path() -> Path:
    """By the platform's custom (`~/.local/share/pagedchat/history.db` on Linux)."""
    from platformdirs import user_data_path  # noqa: PLC0415 - not for the first frame

    return user_data_path("pagedchat", appauthor=False) / FILE_NAME


def lock_folder(path: Path) -> Path:
    """Beside the history of this path."""
    return path.parent / LOCKS


def related_files(path: Path) -> list[Path]:
    """The database's file and those that SQLite keeps beside it."""
    return [path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))]

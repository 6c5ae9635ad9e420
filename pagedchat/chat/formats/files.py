"""Chats into files and out of them, the format by the name's ending. Knows no screen; asks nobody.

A file is written beside its place and put there whole, and only the user may read it. One that is there already is
never touched unless that was asked for.
"""

import json
import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pagedchat.bounds import shown
from pagedchat.chat.formats.html import to_html
from pagedchat.chat.formats.markdown import to_markdown
from pagedchat.chat.formats.other_json import chats_of
from pagedchat.chat.formats.own_json import from_json, is_own, to_json
from pagedchat.chat.formats.saved_chat import FormatError, SavedChat
from pagedchat.chat.formats.svg import to_svg
from pagedchat.errors import first_line

MOST_BYTES = 512 << 20
"""A file of ten years' chats has some 100 MiB."""
WRITERS: dict[str, Callable[[SavedChat], str]] = {
    ".md": to_markdown, ".json": to_json, ".html": to_html, ".svg": to_svg,
}  # fmt: skip


class FileExistsAlreadyError(FormatError):
    """There is a file of that name; it was not touched."""


def write_chat(path: Path, chat: SavedChat, *, overwrite: bool = False) -> int:
    """Write a chat into a new file; returns its bytes.

    Raises:
        FileExistsAlreadyError: there is one, and nobody said that it may go.
        FormatError: there is no such format, or it cannot be written.
    """
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise FormatError(f"A chat is not written as {shown(path.suffix or path.name)}.",
                          f"Name a file that ends in {', '.join(WRITERS)}.")  # fmt: skip
    if not overwrite and os.path.lexists(path):
        raise FileExistsAlreadyError(f"{path} is there already.")
    data = writer(chat).encode("utf-8", "replace")
    try:
        _put(path, data, overwrite=overwrite)
    except FileExistsError:
        raise FileExistsAlreadyError(f"{path} is there already.") from None
    except (OSError, ValueError) as error:
        raise FormatError(f"{path} cannot be written: {_reason(error)}.") from None
    return len(data)


def _put(path: Path, data: bytes, *, overwrite: bool) -> None:
    """A whole file at its place at once; `mkstemp` makes it for this user alone."""
    if overwrite and not path.is_file() and os.path.lexists(path):
        raise OSError(0, "that is no file")
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        if overwrite:
            os.replace(name, path)
        else:
            _link_new(name, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)


def _link_new(name: str, path: Path) -> None:
    """Unlike a rename, a link fails where a file has come in between; not every file system has links."""
    try:
        os.link(name, path)
    except FileExistsError:
        raise
    except OSError:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        os.replace(name, path)


# --- reading ------------------------------------------------------------------------------------------


def read_chats(path: Path) -> list[SavedChat]:
    """All chats of a file: one of ours, or those of ChatGPT or of llama.cpp's web UI.

    Raises:
        FormatError: it cannot be read, or holds none; one sentence that names the file.
    """
    value = _json_of(path)
    try:
        chats = [from_json(value)] if is_own(value) else chats_of(value)
    except FormatError as error:
        raise FormatError(f"{path} cannot be imported. {error.message}", error.hint) from None
    if not chats:
        raise FormatError(f"{path} holds no chat.",
                          "JSON of pagedchat, of ChatGPT and of llama.cpp can be read.")  # fmt: skip
    return chats


def _json_of(path: Path) -> Any:
    try:
        data = _bytes_of(path)
        return json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise FormatError(f"{path} is not text in UTF-8.") from None
    except json.JSONDecodeError as error:
        raise FormatError(f"{path} is not JSON: line {error.lineno}, column {error.colno}.") from None
    except RecursionError:
        raise FormatError(f"{path} is nested too deeply.") from None
    except MemoryError:
        raise FormatError(f"{path} is too large for this machine's memory.") from None
    except (OSError, ValueError) as error:
        raise FormatError(f"{path} cannot be read: {_reason(error)}.") from None


def _bytes_of(path: Path) -> bytes:
    """Nothing but a plain file: a pipe would be waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "that is a folder" if stat.S_ISDIR(status.st_mode) else "that is no file")
        if status.st_size > MOST_BYTES:
            raise FormatError(f"{path} has {status.st_size >> 20} MiB; at most {MOST_BYTES >> 20} are read.")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(MOST_BYTES)
    finally:
        os.close(descriptor)


def _reason(error: Exception) -> str:
    words = getattr(error, "strerror", None) or first_line(error)
    return words[:1].lower() + words[1:]

"""`@name` in a prompt: the file's text, put behind the prompt. Knows no screen.

Only plain files of text go in, and only so much of it; what goes in is told, and what no eye would see in it is
written out. A word with an @ that names no file is a word like any other.
"""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pagedchat.chat.formats.written_out import written_out
from pagedchat.errors import PagedChatError, first_line
from pagedchat.units import format_size

MOST_BYTES = 256 << 10
"""Of one file."""
MOST_IN_ALL = 1 << 20
MOST_FILES = 20
_MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')
_AT_THE_END = ".,;:!?)]}'\""


class PromptFileError(PagedChatError):
    """A file that cannot be put into a prompt."""


@dataclass(frozen=True, slots=True)
class FilledPrompt:
    """A prompt with its files."""

    text: str
    told: str
    """What was put in, and what looks like a file and is none; empty where there was nothing of either."""


def with_files(prompt: str, root: Path) -> FilledPrompt:
    """The prompt with the text of every file that it names.

    Raises:
        PromptFileError: one of them is too large, or no text, or cannot be read.
    """
    if "@" not in prompt:
        return FilledPrompt(prompt, "")
    found: dict[str, str] = {}
    missing: list[str] = []
    for name in _mentions(prompt):
        path = _file_of(name, root)
        if path is None:
            missing += [name.rstrip(_AT_THE_END)] if _looks_like_a_file(name) else []
        elif (shown := _trimmed(name, root)) not in found:
            found[shown] = _text_of(path, shown)
    _check_all(found)
    return FilledPrompt("\n\n".join([prompt, *(_fenced(*each) for each in found.items())]), _told(found, missing))


def mention(name: str) -> str:
    """How a file is named in a prompt."""
    return f'@"{name}"' if re.search(r"\s", name) or name[-1:] in _AT_THE_END else f"@{name}"


def _mentions(prompt: str) -> Iterator[str]:
    return (found[1] or found[2] for found in _MENTION.finditer(prompt))


def _trimmed(name: str, root: Path) -> str:
    """A name at the end of a sentence has its full stop behind it."""
    return name if _is_there(root, name) else name.rstrip(_AT_THE_END)


def _file_of(name: str, root: Path) -> Path | None:
    name = _trimmed(name, root)
    return _path(root, name) if name and _is_there(root, name) else None


def _path(root: Path, name: str) -> Path:
    try:
        return root / Path(name).expanduser()
    except RuntimeError:  # the home folder of nobody
        return root / name


def _is_there(root: Path, name: str) -> bool:
    try:
        return not stat.S_ISDIR(_path(root, name).stat().st_mode)
    except (OSError, ValueError):
        return False


def _looks_like_a_file(name: str) -> bool:
    return "/" in name or re.search(r"\w\.\w{1,5}$", name.rstrip(_AT_THE_END)) is not None


def _text_of(path: Path, shown: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(MOST_BYTES + 1) if regular else b"\0"
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise PromptFileError(f"{shown} cannot be read: {reason}.", "The prompt was not sent.") from None
    if b"\0" in data[:8192]:
        raise PromptFileError(f"{shown} is no text.", "Only text can be put into a prompt; it was not sent.")
    if len(data) > MOST_BYTES:
        raise PromptFileError(f"{shown} is larger than {format_size(MOST_BYTES)}.",
                              "No more of a file goes into a prompt; it was not sent.")  # fmt: skip
    try:
        return written_out(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise PromptFileError(f"{shown} is no text in UTF-8.", "The prompt was not sent.") from None


def _check_all(found: dict[str, str]) -> None:
    total = sum(map(len, found.values()))
    if len(found) > MOST_FILES or total > MOST_IN_ALL:
        raise PromptFileError(f"{len(found)} files with {total:,} characters are too much.",
                              f"{MOST_FILES} files, {MOST_IN_ALL:,} characters may be; not sent.")  # fmt: skip


def _fenced(name: str, text: str) -> str:
    """The file under its name, in a fence longer than any in it."""
    longest = max((len(run) for run in re.findall("`{3,}", text)), default=2)
    fence = "`" * max(3, longest + 1)
    kind = re.search(r"\.(\w{1,10})$", name)
    return f"{name}:\n{fence}{kind[1] if kind else ''}\n{text.rstrip(chr(10))}\n{fence}"


def _told(found: dict[str, str], missing: list[str]) -> str:
    told = [f"{name} ({_lines(text)}, {format_size(len(text.encode()))})" for name, text in found.items()]
    put_in = f"Put into the prompt: {', '.join(told)}." if told else ""
    none = f"There is no file {', '.join(missing)}; sent as it is written." if missing else ""
    return " ".join(filter(None, (put_in, none)))


def _lines(text: str) -> str:
    number = text.rstrip("\n").count("\n") + 1
    return f"{number:,} lines" if number != 1 else "1 line"

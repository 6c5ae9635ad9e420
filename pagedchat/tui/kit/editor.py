"""A text in the user's own editor, on the terminal that the program has given up meanwhile.

The text is in a file of its own until it is safely back, whatever ends the editor, the program or the machine.
"""

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from textual.app import App, SuspendNotSupported

from pagedchat.errors import PagedChatError, first_line
from pagedchat.private_files import make_folder

MOST_BYTES = 4 << 20
_USUAL = ("sensible-editor", "nano", "vim", "vi", "emacs")


class EditorError(PagedChatError):
    """The editor could not be used; the text is as it was."""


def editor_command(environ: Mapping[str, str]) -> list[str]:
    """What $VISUAL or $EDITOR says, with its arguments, or a usual one.

    Raises:
        EditorError: there is none.
    """
    for name in ("VISUAL", "EDITOR"):
        if environ.get(name, "").strip():
            try:
                return shlex.split(environ[name])
            except ValueError as error:
                raise EditorError(
                    f"${name} is no command: {first_line(error)}.", f"Set {name} to an editor."
                ) from None
    found = next(filter(None, map(shutil.which, _USUAL)), None)
    if found is None:
        raise EditorError("There is no editor.", "Set EDITOR in the environment to one.")
    return [found]


def edited(app: App[None], text: str, folder: Path) -> str:
    """What becomes of a text in the editor.

    Args:
        app: gives up the terminal meanwhile.
        text: to begin with.
        folder: where the text lies meanwhile, and stays if anything goes wrong.

    Raises:
        EditorError: there is no editor, it failed, or what it left cannot be read. The text is as it was.
    """
    command = editor_command(os.environ)
    path = _draft(folder, text)
    try:
        with app.suspend(), _terminal_of_another():
            status = subprocess.run([*command, str(path)], check=False).returncode  # noqa: S603 - the user's own
    except (OSError, ValueError) as error:
        path.unlink(missing_ok=True)
        reason = getattr(error, "strerror", None) or first_line(error)
        raise EditorError(f"{command[0]} cannot be started: {reason}.", "Set EDITOR to another editor.") from None
    except SuspendNotSupported:
        path.unlink(missing_ok=True)
        raise EditorError("Here the terminal cannot be given to an editor.") from None
    if status:
        raise EditorError(f"{Path(command[0]).name} ended with status {status}; the prompt is as it was.",
                          f"What it may have written is in {path}.")  # fmt: skip
    result = _read(path)
    path.unlink(missing_ok=True)
    return result


def _draft(folder: Path, text: str) -> Path:
    try:
        make_folder(folder)
        descriptor, name = tempfile.mkstemp(prefix="prompt-", suffix=".md", dir=folder)  # for this user alone
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8", "replace"))
    except OSError as error:
        raise EditorError(f"The prompt cannot be written for the editor: {error.strerror}.") from None
    return Path(name)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise EditorError(
            f"What was edited cannot be read: {error.strerror}.", f"It should be in {path}."
        ) from None
    if len(data) > MOST_BYTES:
        raise EditorError("What was edited is larger than a prompt can be (4 MiB).", f"It is in {path}.")
    try:
        return data.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        raise EditorError("What was edited is no text in UTF-8.", f"It is in {path}.") from None


@contextmanager
def _terminal_of_another() -> Iterator[None]:
    """Keys that are signals are the editor's; it and this program stop and go on together."""
    handlers: dict[signal.Signals, Any] = {
        signal.SIGINT: _let_pass, signal.SIGQUIT: _let_pass,
        signal.SIGTSTP: signal.SIG_DFL, signal.SIGCONT: signal.SIG_DFL,
    }  # fmt: skip
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _let_pass(number: int, frame: FrameType | None) -> None:
    """A handler and not SIG_IGN, which the editor would inherit."""

"""Standard input, output and error as the shell gave them: each of them may be closed, full, or read by nobody."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from pagedchat.errors import InvalidValueError, PagedChatError


class OutputError(PagedChatError):
    """What is to be said cannot be written."""


@contextmanager
def checked_output() -> Iterator[None]:
    """While this is entered it is told whenever standard output cannot be written to.

    Raises:
        OutputError: at the beginning where it is closed, at any writing to it, or for what is left at the end.
        BrokenPipeError: nobody reads it any more.
    """
    _open_closed_streams()
    output = sys.stdout
    sys.stdout = cast(TextIO, _Checked(output))
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    finally:
        sys.stdout = output


class _Checked:
    """Standard output whose troubles cannot be taken for those of other files."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with _telling():
            try:
                return self._stream.write(text)
            except UnicodeEncodeError:  # a terminal that knows few characters
                encoding = self._stream.encoding
                return self._stream.write(text.encode(encoding, "replace").decode(encoding))

    def flush(self) -> None:
        with _telling():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _telling() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OutputError(f"Standard output cannot be written: {reason}.", "Write to another place.") from error


def _open_closed_streams() -> None:
    """Open what is closed on nothing, or a file opened later would take its place."""
    output_is_closed = sys.stdout is None
    sys.stdin = sys.stdin or _nothing("r")
    sys.stdout = sys.stdout or _nothing("w")
    sys.stderr = sys.stderr or _nothing("w")
    if output_is_closed:
        raise OutputError("Standard output is closed.", "Leave out >&-, or write to a file.")


def check_terminal_type() -> None:
    """Whether screens can be drawn on this terminal at all.

    Raises:
        InvalidValueError: it says of itself that it cannot place a cursor, or nobody knows what it can.
    """
    kind = os.environ.get("TERM", "")
    if kind in ("dumb", "unknown"):
        raise InvalidValueError(
            f"This terminal cannot show screens (TERM={kind}).",
            'For one reply use -p "TEXT"; if it can, name it: TERM=xterm-256color pagedchat.',
        )


def give_up_output() -> None:
    """Nobody gets what is left; keep the interpreter from complaining about that when it flushes at exit."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


def say_error(line: str) -> None:
    """A line on standard error; where that cannot be written to either, the exit code has to say it."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def _nothing(mode: str) -> TextIO:
    """The lowest free descriptor is that of the stream which is missing, where they are opened in order."""
    return cast(TextIO, open(os.devnull, mode, encoding="utf-8"))

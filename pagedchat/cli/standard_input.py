"""Standard input as a prompt, or as what a prompt on the command line is about. Knows no model."""

import io
import select
import sys
from typing import TextIO

from pagedchat.cli.standard_streams import say_error
from pagedchat.errors import InvalidValueError

PATIENCE = 2.0
"""Seconds until the first byte, where there is a prompt already: many who start programs leave a pipe open."""
_NO_TEXT = "Give text, in UTF-8."


def whole_prompt(prompt: str | None) -> str:
    """The prompt of the command line with what standard input has, or that alone.

    Args:
        prompt: `-p`; None or `-` where the prompt is standard input itself.

    Raises:
        InvalidValueError: both are empty, or standard input is no text.
    """
    if prompt in (None, "-"):
        text = _read(sys.stdin)
    elif sys.stdin.isatty():
        text = prompt or ""
    elif _something_comes(sys.stdin):
        text = "\n\n".join(part for part in (prompt, _read(sys.stdin).strip("\n")) if part and part.strip())
    else:
        say_error(f"Nothing came from standard input in {PATIENCE:g} s; the reply is to -p alone.")
        text = prompt or ""
    if not text.strip():
        raise InvalidValueError("The prompt is empty.", 'Give one with -p "TEXT" or on standard input.')
    return text


def _something_comes(stream: TextIO) -> bool:
    """Whether there is something to read, or its end."""
    try:
        return bool(select.select([stream], [], [], PATIENCE)[0])
    except (OSError, ValueError, io.UnsupportedOperation):  # no file of the system
        return True


def _read(stream: TextIO) -> str:
    """All of it, which may have been read as bytes that are no characters."""
    buffer = getattr(stream, "buffer", None)
    if buffer is None:
        text = stream.read()
    else:
        try:
            text = buffer.read().decode()
        except UnicodeDecodeError as error:
            raise InvalidValueError(
                f"Standard input is no text: byte {error.start} is not UTF-8.", _NO_TEXT
            ) from None
    if "\0" in text:
        raise InvalidValueError(f"Standard input is no text: byte {text.index(chr(0))} is zero.", _NO_TEXT)
    return text

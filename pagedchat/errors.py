"""What can go wrong through a user's doing or the machine's, said in one sentence with what to do next.

Anything else that escapes is a defect of pagedchat and shows its traceback in the log.
"""

import errno
from typing import Any


class PagedChatError(Exception):
    """An error meant for people: `message` says what is wrong, `hint` what to do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()

    def __reduce__(self) -> tuple[type["PagedChatError"], tuple[str, ...]]:
        return type(self), (self.message, self.hint)


class InvalidValueError(PagedChatError, ValueError):
    """A setting or argument outside what it may be."""


class ModelError(PagedChatError):
    """The model cannot be found, read or run."""


class DeviceError(PagedChatError):
    """The device asked for is missing or has too little memory."""


class KernelError(PagedChatError):
    """A CUDA kernel, or what it takes to compile, load or launch one, is missing or fails."""


class KernelCompileError(KernelError):
    """A kernel does not compile; the message names file and line, `log` is all that the compiler said."""

    def __init__(self, message: str, hint: str = "", log: str = "") -> None:
        super().__init__(message, hint)
        self.log = log

    def __reduce__(self) -> tuple[type["KernelCompileError"], tuple[str, ...]]:
        return type(self), (self.message, self.hint, self.log)


class RequestError(PagedChatError):
    """One request cannot be served (too long, unknown sequence); the engine goes on."""


class EngineStateError(PagedChatError):
    """The engine takes no call now: it is closed, in the middle of another one, or another process has it."""


class EngineDeadError(PagedChatError):
    """The engine process ended, or cannot start; requests that it had are lost. Named as vLLM's."""


class IntegrityError(AssertionError):
    """The block manager broke one of its own invariants; carries the numbers. Always a defect."""

    dump: dict[str, Any] | None = None
    """All that the engine knew of its cache, as plain data, where an engine in use found it out."""


def first_line(error: BaseException) -> str:
    """What an error says, as the end of a sentence without its full stop; its kind where it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory was wanted that is not there, of the host or of a device; torch says so in several ways."""
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _NO_MEMORY)
    )


_NO_MEMORY = ("out of memory", "allocate memory", "not enough memory")


def is_of_one_request(error: BaseException) -> bool:
    """Whether an error that nobody expected, met while one request was served, ends that request alone.

    It does not where an invariant is broken, where whoever listens is gone, and where the program is to end. A
    panic inside `tokenizers` is no `Exception` for Python, but as good as one here.
    """
    if isinstance(error, (AssertionError, ConnectionError)):
        return False
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"

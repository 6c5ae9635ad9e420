"""One line on standard error that says how far the compiler is."""

from types import TracebackType
from typing import Self, TextIO

from pagedchat.jit.builder import Build

_PLAIN_STEPS = 10


class ProgressLine:
    """Overwrites itself in a terminal; elsewhere, as in the log of a CI run, ten lines in all."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._width = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Clear the line, so that what comes next starts on a clean one."""
        if self._is_terminal and self._width:
            self._write(f"\r{'':{self._width}}\r")

    def __call__(self, done: int, total: int, build: Build) -> None:
        """Told by the builder after each variant."""
        text = f"compiled {done} of {total} variants, {build.variant.stem} for {build.architecture}"
        if self._is_terminal:
            self._write(f"\r{text:<{self._width}}")
            self._width = max(self._width, len(text))
        elif done * _PLAIN_STEPS // total != (done - 1) * _PLAIN_STEPS // total:
            self._write(f"{text}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

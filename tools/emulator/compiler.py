"""The C++ compiler: text into libraries, each built once and found again by all that it was made of."""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

from pagedchat.errors import KernelCompileError
from pagedchat.jit.cache import default_folder
from tools.emulator.errors import EmulatorMissingError

HERE = Path(__file__).parent
STANDARD = "-std=c++17"


def find_compiler() -> str:
    """`$CXX`, or `g++`.

    Raises:
        EmulatorMissingError: there is none, or this is no Linux on x86-64.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise EmulatorMissingError("The kernel emulator runs on Linux on x86-64 only.")
    name = os.environ.get("CXX", "g++")
    path = shutil.which(name)
    if path is None:
        raise EmulatorMissingError(
            f"The kernel emulator needs a C++ compiler: {name} was not found.", "Install g++."
        )
    return path


def preprocess(source: Path, options: list[str]) -> str:
    """Macros expanded, headers of the project included.

    Raises:
        KernelCompileError: it cannot be done.
    """
    return _run([find_compiler(), STANDARD, "-E", "-nostdinc", "-x", "c++", *options, str(source)], source.name)


def build(name: str, text: str, options: list[str]) -> Path:
    """The shared library made of `text`, from the cache if it is there.

    Args:
        name: of the file, for people.
        text: C++.
        options: of the compiler.

    Raises:
        KernelCompileError: the compiler refuses.
    """
    command = [*_command(options), "-shared"]
    library = _folder() / f"{name}_{_key(text, *command)}.so"

    def compile_text(made: Path) -> None:
        source = library.with_suffix(".cpp")
        source.write_text(text, encoding="utf-8")
        _run([*command, str(source), "-o", str(made)], library.stem)
        source.unlink()

    _make_once(library, compile_text)
    return library


def read_once(header: Path, digest: str, options: list[str]) -> Path:
    """A folder to search first: who includes `header` before all else, with the same options, finds it there as the
    compiler has read it, which is half of the work for a small kernel.

    Args:
        header: with all that it includes beside it.
        digest: of all these.
        options: of the compiler.

    Raises:
        KernelCompileError: the compiler refuses.
    """
    command = [*_command(options), f"-I{header.parent}", "-x", "c++-header", str(header)]
    folder = _folder() / f"{header.stem}_{_key(digest, *command)}"
    _make_once(folder / f"{header.name}.gch", lambda made: _run([*command, "-o", str(made)], header.name))
    return folder


def _command(options: list[str]) -> list[str]:
    return [find_compiler(), STANDARD, "-fPIC", "-w", *options]


def _folder() -> Path:
    return default_folder().with_name("emulator")


def _key(*parts: str) -> str:
    """Of what is compiled and how. Where the project lies is left out: other copies of it find the same."""
    anywhere = [part.replace(str(HERE), "") for part in parts]
    return hashlib.sha256("\0".join([*anywhere, _version()]).encode()).hexdigest()[:24]


def _make_once(path: Path, make: Callable[[Path], object]) -> None:
    """Let `make` write a file that takes the place of `path`, unless that is there."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests that run side by side want the same kernels
        if not path.exists():
            made = path.with_suffix(".tmp")
            make(made)
            made.replace(path)


def _run(command: list[str], name: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the compiler
    if result.returncode:
        first = next((line for line in result.stderr.splitlines() if "error:" in line), "no message")
        raise KernelCompileError(f"{name} does not compile for the CPU: {first}", log=result.stderr)
    return result.stdout


@cache
def _version() -> str:
    return _run([find_compiler(), "--version"], "the compiler's version")

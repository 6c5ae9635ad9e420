"""The C++ compiler: text into libraries, each built once and found again by all that it was made of."""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
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
    command = [find_compiler(), STANDARD, "-fPIC", "-shared", "-w", *options]
    key = hashlib.sha256("\0".join([text, *command, _version()]).encode()).hexdigest()[:24]
    folder = default_folder().with_name("emulator")
    library = folder / f"{name}_{key}.so"
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with library.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests that run side by side want the same kernels
        if not library.exists():
            _compile(command, text, library)
    return library


def _compile(command: list[str], text: str, library: Path) -> None:
    source, made = library.with_suffix(".cpp"), library.with_suffix(".tmp")
    source.write_text(text, encoding="utf-8")
    _run([*command, str(source), "-o", str(made)], library.stem)
    made.replace(library)
    source.unlink()


def _run(command: list[str], name: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the compiler
    if result.returncode:
        first = next((line for line in result.stderr.splitlines() if "error:" in line), "no message")
        raise KernelCompileError(f"{name} does not compile for the CPU: {first}", log=result.stderr)
    return result.stdout


@cache
def _version() -> str:
    return _run([find_compiler(), "--version"], "the compiler's version")

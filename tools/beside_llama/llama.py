"""llama.cpp's library for this machine, its driver and its files, in one folder. Knows no engine of ours.

The npm package `@node-llama-cpp/linux-x64` ships the library prebuilt for several processors, of which the best is
taken when it is loaded, and `node-llama-cpp` the sources that it was built from, as a git bundle.
"""

import os
import subprocess
import tarfile
from pathlib import Path

_PACKAGES = ("node-llama-cpp", "@node-llama-cpp/linux-x64")
_QUANTIZED = {"Q8_0": "7", "Q4_0": "2"}
"""What the library calls them."""
_DRIVER = Path(__file__).with_name("driver.cpp")


class Llama:
    """The library in a folder.

    Args:
        folder: of this alone; what is there is not fetched again.
        threads: that it computes with.
    """

    def __init__(self, folder: Path, threads: int) -> None:
        self._folder = folder
        self._program = folder / "driver"
        if not self._program.exists():
            _fetch(folder)
            self._compile()
        self.environment = os.environ | {
            "LLAMA_LIBRARIES": str(self._libraries),
            "LD_LIBRARY_PATH": str(self._libraries),
            "OMP_NUM_THREADS": str(threads),
        }

    def command(self, file: Path) -> list[str]:
        """What answers for a file."""
        return [str(self._program), str(file)]

    def quantize(self, file: Path, kind: str) -> Path:
        """A file of fewer bits beside one of bfloat16, unless it is there."""
        smaller = file.with_name(f"{file.stem}-{kind}.gguf")
        if not smaller.exists():
            part = smaller.with_suffix(".part")
            _run([str(self._program), "quantize", str(file), str(part), _QUANTIZED[kind]], env=self.environment)
            part.rename(smaller)
        return smaller

    @property
    def _libraries(self) -> Path:
        return next(self._folder.glob("linux-x64/**/libllama.so")).parent

    def _compile(self) -> None:
        sources, libraries = self._folder / "sources", self._libraries
        part = self._program.with_suffix(".part")
        _run(
            [
                "g++", "-O2", str(_DRIVER), f"-I{sources / 'include'}", f"-I{sources / 'ggml' / 'include'}",
                f"-L{libraries}", "-lllama", "-lggml", "-lggml-base", f"-Wl,-rpath,{libraries}", "-o", str(part),
            ]
        )  # fmt: skip
        part.rename(self._program)


def _fetch(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for package in _PACKAGES:
        into = folder / package.rsplit("/", 1)[-1]
        if not into.exists():
            name = _run(["npm", "pack", "--silent", package], cwd=folder).strip()
            with tarfile.open(folder / name) as archive:
                archive.extractall(into, filter="data")
            (folder / name).unlink()
    for versioned in folder.glob("linux-x64/**/lib*.v*.so"):
        plain = versioned.with_name(versioned.name.split(".v")[0] + ".so")
        if not plain.exists():
            plain.symlink_to(versioned.name)
    sources = folder / "sources"
    if not sources.exists():
        bundle = next((folder / "node-llama-cpp").rglob("*.bundle"))
        _run(["git", "clone", "--quiet", str(bundle), str(sources)])


def _run(command: list[str], **options: object) -> str:
    """Its output; what it said of an error is raised."""
    done = subprocess.run(  # type: ignore[call-overload]  # noqa: S603 - names are written in this file
        command, capture_output=True, text=True, check=False, **options
    )
    if done.returncode:
        raise SystemExit(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return str(done.stdout)

"""The other machine: kernels are linked into a program for arm64, which QEMU runs until this process ends. Stands
in for `jit.cpu.library`. Knows no kernel.
"""

import re
import shutil
import subprocess
import tempfile
import weakref
from pathlib import Path

from pagedchat.jit.cpu.cache import ObjectCache, cache_key
from pagedchat.jit.cpu.compiler import compile_object
from pagedchat.jit.cpu.target import CpuTarget

_RUNNER = Path(__file__).with_name("runner.c")
_KERNEL = re.compile(r"^define void @(\w+)\(ptr %args, i64 %first, i64 %last\)", re.MULTILINE)
_FIRST_ADDRESS = 1 << 56
"""Of kernels, as this process knows them: nothing of its own has such addresses."""

_names: list[str] = []
"""Of all kernels, in the order of their addresses."""
_objects: list[bytes] = []


class ForeignLibrary:
    """As `Library`, but for addresses that only `number_of` knows.

    Args:
        text: IR of a module.
        target: an arm64.
        cache: of compiled code.
    """

    def __init__(self, text: str, target: CpuTarget, cache: ObjectCache) -> None:
        self.was_kept = True
        found = _KERNEL.findall(text)
        if found and found[0] not in _names:
            _names.extend(found)
            key = cache_key(text, target)
            compiled = cache.get(key)
            if compiled is None:
                self.was_kept, compiled = False, compile_object(text, target)
                cache.put(key, compiled)
            _objects.append(compiled)
        self._addresses = {name: _FIRST_ADDRESS + _names.index(name) for name in found}

    def address(self, name: str) -> int:
        """Of a kernel.

        Raises:
            KeyError: there is none.
        """
        return self._addresses[name]


def number_of(address: int) -> int:
    """Of a kernel, in the program."""
    return address - _FIRST_ADDRESS


class Machine:
    """The program, and QEMU.

    Args:
        compiler: links the program.
        emulator: runs it; none where this machine can.

    Raises:
        SystemExit: one of them is missing.
    """

    def __init__(self, compiler: str = "aarch64-linux-gnu-gcc", emulator: str = "qemu-aarch64") -> None:
        missing = [name for name in (compiler, emulator) if name and shutil.which(name) is None]
        if missing:
            raise SystemExit(f"{' and '.join(missing)} are missing (Debian: qemu-user, gcc-aarch64-linux-gnu)")
        folder = tempfile.TemporaryDirectory(prefix="pagedchat-arm64-")
        program = _linked(compiler, Path(folder.name))
        self.process = subprocess.Popen(  # noqa: S603 - made here
            [*filter(None, [emulator]), str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.close = weakref.finalize(self, _end, self.process, folder)

    def exchange(self, written: bytes, num_bytes: int) -> bytes:
        """What the program answers.

        Raises:
            RuntimeError: it ended, as where a kernel reads where nothing is.
        """
        assert self.process.stdin is not None  # noqa: S101 - both are pipes
        assert self.process.stdout is not None  # noqa: S101
        try:
            self.process.stdin.write(written)
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        answer = self.process.stdout.read(num_bytes)
        if len(answer) < num_bytes:
            raise RuntimeError(f"the kernels' process ended with {self.process.wait()}")
        return answer


def _linked(compiler: str, folder: Path) -> Path:
    table = folder / "table.c"
    declared = "".join(f"void {name}(int64_t *, int64_t, int64_t);\n" for name in _names)
    listed = ", ".join(_names)
    table.write_text(
        f"#include <stdint.h>\n{declared}void (*kernels[])(int64_t *, int64_t, int64_t) = {{{listed}}};\n"
    )
    objects = []
    for i, each in enumerate(_objects):
        objects.append(folder / f"{i}.o")
        objects[-1].write_bytes(each)
    program = folder / "program"
    subprocess.run(  # noqa: S603 - names are written here
        [compiler, "-static", "-O1", str(_RUNNER), str(table), *map(str, objects), "-o", str(program)], check=True
    )
    return program


def _end(process: "subprocess.Popen[bytes]", folder: "tempfile.TemporaryDirectory[str]") -> None:
    process.kill()
    process.communicate()
    folder.cleanup()

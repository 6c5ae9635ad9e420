"""Kernel files and the runtime as libraries in this process."""

import ctypes
import hashlib
from functools import cache
from pathlib import Path

from pagedchat.jit.source import kernel_path
from pagedchat.jit.variant import Variant
from pagedchat.resources import resource_dir
from tools.emulator.compiler import HERE, build, preprocess, read_once
from tools.emulator.entries import find_entries
from tools.emulator.translate_asm import translate_asm
from tools.emulator.translate_shared import translate_shared

ARCHITECTURE = 900
"""`__CUDA_ARCH__`: of sm_90."""
_KERNEL_OPTIONS = ["-Og", "-fvisibility=hidden", "-fno-gnu-unique", "-fno-strict-aliasing"]
"""NOTE: without the second and third, functions of the same name in two variants would be one. Most variants run
once: with -O1 they run no faster, and take half as long again to compile."""
_RUNTIME_OPTIONS = ["-O2"]


def load_kernel(variant: Variant, folder: Path | None = None) -> ctypes.CDLL:
    """The library of a variant.

    Args:
        variant: file and constants.
        folder: with the kernel files; the project's by default.

    Raises:
        EmulatorMissingError: this machine cannot do it.
        KernelCompileError: the compiler refuses.
        OSError: there is no such file.
    """
    _runtime()
    device, digest = HERE / "device", _digest(HERE / "device")
    text = translated(variant, folder) + digest
    headers = [f"-I{read_once(device / 'device.h', digest, _KERNEL_OPTIONS)}", f"-I{device}"]
    return ctypes.CDLL(str(build(variant.stem, text, [*_KERNEL_OPTIONS, *headers])))


def translated(variant: Variant, folder: Path | None = None) -> str:
    """The C++ that is compiled for the CPU."""
    folder = folder or resource_dir("kernels")
    source = kernel_path(folder, variant.stem)
    source.stat()
    defines = [f"-D{name}={value}" for name, value in variant.defines]
    includes = [f"-I{HERE / 'device'}", f"-I{folder}", f"-I{resource_dir('kernels')}"]
    text = _wherever(preprocess(source, [f"-D__CUDA_ARCH__={ARCHITECTURE}", *defines, *includes]))
    glue = "".join(entry.glue for entry in find_entries(text))
    body = translate_shared(translate_asm(text))
    return f'#include "device.h"\n#include "entry.h"\n{body}\n{glue}'


def _wherever(text: str) -> str:
    """Lines that say which file the next ones are of name it as seen from the project's folder, so that what was
    compiled for one copy of the project is found by all others."""
    for folder in {HERE.parents[1], resource_dir("kernels").parent}:
        text = text.replace(f' "{folder}/', ' "')
    return text


@cache
def _runtime() -> ctypes.CDLL:
    """What all kernels call: compiled as one file, and visible to those that are loaded later."""
    sources = sorted((HERE / "runtime").glob("*.cpp"))
    text = "".join(f'#include "{path.name}"\n' for path in sources)
    text += _digest(HERE / "runtime") + _digest(HERE / "device")
    options = [*_RUNTIME_OPTIONS, f"-I{HERE / 'runtime'}"]
    return ctypes.CDLL(str(build("runtime", text, options)), mode=ctypes.RTLD_GLOBAL)


@cache
def _digest(folder: Path) -> str:
    """A comment that changes with what is included from a folder."""
    contents = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    return f"// {hashlib.sha256(contents).hexdigest()}\n"

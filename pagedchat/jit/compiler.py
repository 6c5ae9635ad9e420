"""NVRTC: the source of a kernel and its constants -> a cubin for one architecture. Knows no cache and no GPU.

A call releases the interpreter lock while NVRTC works, so several threads compile side by side.
"""

import io
import re
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pagedchat.errors import KernelCompileError
from pagedchat.jit.architecture import compiler_target
from pagedchat.jit.resource_usage import ResourceUsage, parse_usage, without_report
from pagedchat.jit.source import KernelSource
from pagedchat.jit.toolchain import Toolchain
from pagedchat.jit.variant import Variant

OPTIONS = {
    "std": "c++17",
    "lineinfo": True,  # profilers show the source beside the instructions; costs no speed
    "device_as_default_execution_space": True,  # kernel files hold nothing else, so constexpr helpers need no mark
    "no_cache": True,  # there is one cache, ours
    "ptxas_options": "-v",  # the report of registers, shared memory and spills
}
"""Of every kernel, named as in `cuda.core.ProgramOptions`. No fast-math: a kernel says itself where it will do."""
_import_lock = threading.Lock()
_FIRST_ERROR = re.compile(r"^(.+?\(\d+\)): (?:catastrophic |fatal )?error:? *(.*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Cubin:
    """Code of one variant for one architecture."""

    code: bytes
    usage: tuple[ResourceUsage, ...]
    """One for every entry point."""
    seconds: float
    """What compiling took."""
    warnings: str = ""
    """The compiler's, empty if it had none."""


def compile_kernel(source: KernelSource, variant: Variant, architecture: str, toolchain: Toolchain) -> Cubin:
    """Compile; safe to call from several threads.

    Raises:
        KernelCompileError: NVRTC refuses the source; carries its log.
    """
    started = time.perf_counter()
    code, log = _run_nvrtc(source, variant, architecture, toolchain)
    if code is None:
        raise _compile_error(variant, architecture, log)
    return Cubin(code, parse_usage(log), time.perf_counter() - started, without_report(log))


def _run_nvrtc(
    source: KernelSource, variant: Variant, architecture: str, toolchain: Toolchain
) -> tuple[bytes | None, str]:
    """The cubin, None where there is an error, and what NVRTC says.

    The error goes no further: a `Program` that its traceback kept alive would complain when it is collected.
    """
    program_class, options_class = _cuda_core()
    options = options_class(
        name=str(source.path),
        arch=compiler_target(architecture),
        include_path=[str(source.folder), str(toolchain.headers)],
        define_macro=list(variant.defines) or None,
        **OPTIONS,
    )
    log = io.StringIO()
    with closing(program_class(source.text, "c++", options)) as program:
        try:
            return bytes(program.compile("cubin", logs=log).code), log.getvalue()
        except Exception as error:
            if type(error).__name__ != "NVRTCError":  # a class that cuda.core does not export
                raise
            return None, str(error)


def _cuda_core() -> tuple[Any, Any]:
    """`Program` and `ProgramOptions`; two threads that load cuda.core at a time find it half loaded."""
    with _import_lock:
        from cuda.core import Program, ProgramOptions  # noqa: PLC0415 - takes 0.2 s
    return Program, ProgramOptions


def _compile_error(variant: Variant, architecture: str, text: str) -> KernelCompileError:
    """The first error with its file and line in the message, everything NVRTC said in the log."""
    log = text.partition("compilation log:")[2].strip("\0 \n") or text
    first = _FIRST_ERROR.search(log)
    reason = f"{first[1]}: {first[2]}" if first else log.partition("\n")[0]
    return KernelCompileError(f"Kernel {variant} does not compile for {architecture}: {reason}", log=log)

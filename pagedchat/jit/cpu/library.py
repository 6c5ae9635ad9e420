"""Kernels in memory, ready to be called: out of the cache, or compiled and kept there. Knows no kernel."""

import ctypes
from collections.abc import Callable
from threading import Lock
from typing import Any

from pagedchat.jit.cpu.cache import ObjectCache, cache_key
from pagedchat.jit.cpu.compiler import compile_object
from pagedchat.jit.cpu.target import CpuTarget, binding


class Library:
    """The functions of one object file. It stays in memory for good: threads may be inside.

    Args:
        text: IR of a module.
        target: of this machine.
        cache: where object files are kept.
    """

    def __init__(self, text: str, target: CpuTarget, cache: ObjectCache) -> None:
        key = cache_key(text, target)
        compiled = cache.get(key)
        self.was_kept = compiled is not None
        """Whether nothing had to be compiled."""
        if compiled is None:
            compiled = compile_object(text, target)
            cache.put(key, compiled)
        self._engine = _linked(compiled)

    def address(self, name: str) -> int:
        """Of a function."""
        found = int(self._engine.get_function_address(name))
        if not found:
            raise KeyError(name)
        return found

    def function(self, name: str, *arguments: Any) -> Callable[..., Any]:
        """A function without a result, to be called from Python; others may run meanwhile."""
        made: Callable[..., Any] = ctypes.CFUNCTYPE(None, *arguments)(self.address(name))
        return made


_linking = Lock()
_linked_for_good: list[Any] = []
"""Code is never taken out of memory: at the end of an engine, programs and threads that are garbage too still call
it, and nobody says in which order they go."""


def _linked(compiled: bytes) -> Any:
    llvm = binding()
    with _linking:
        machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
        # Code and constants side by side: apart, one may be out of the other's reach, and LLVM ends the process.
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine, use_lmm=True)
        engine.add_object_file(llvm.ObjectFileRef.from_data(compiled))
        engine.finalize_object()
        _linked_for_good.append(engine)
    return engine

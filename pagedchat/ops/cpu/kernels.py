"""All CPU kernels of this process and its threads, in parts that are compiled when something of them is first
wanted; what most models want before, in the background. Where there are none, it knows why.
"""

import atexit
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache, cached_property, partial
from threading import Event, Lock, Thread

from pagedchat.errors import KernelError
from pagedchat.jit.cpu.cache import ObjectCache
from pagedchat.jit.cpu.ir import Module
from pagedchat.jit.cpu.library import Library
from pagedchat.jit.cpu.pool import Pool
from pagedchat.jit.cpu.pool_code import pool_module
from pagedchat.jit.cpu.target import CpuTarget, host_target
from pagedchat.jit.cpu.threads import num_compute_threads
from pagedchat.ops.cpu.attention import write_attention, write_merge
from pagedchat.ops.cpu.dense_elements import DenseElement, bf16_element
from pagedchat.ops.cpu.dense_product import write_dense_product
from pagedchat.ops.cpu.fit_4_bits import write_fit_4_bits
from pagedchat.ops.cpu.heads import CACHE_ELEMENTS, WHOLE_ELEMENTS, write_heads
from pagedchat.ops.cpu.likely_columns import write_likely_columns
from pagedchat.ops.cpu.long_product import write_long_product
from pagedchat.ops.cpu.many_bytes_product import has_many_bytes, write_many_bytes_product
from pagedchat.ops.cpu.mixture_kernels import write_expert_products, write_mixture
from pagedchat.ops.cpu.prompt_attention import write_prompt_attention
from pagedchat.ops.cpu.quantized_product import write_quantized_product, zero_of
from pagedchat.ops.cpu.rows import sinks_of, write_rows

FEW_ROWS = 32
"""Up to so many kernels are quicker than a library, whatever the weight and the processor."""
_WHAT_TO_DO = "pip install llvmlite, if that is missing; else a smaller model is quicker."
_log = logging.getLogger(__name__)
_lock = Lock()


class LateKernelError(KernelError):
    """LLVM could not make a kernel that is wanted now: from here on there are none for models that are loaded."""


class CpuKernels:
    """What programs are made of.

    Args:
        target: this machine's processor.
        num_threads: that compute, at most.
        cache: of compiled code.
    """

    def __init__(self, target: CpuTarget, num_threads: int, cache: ObjectCache) -> None:
        self.target = target
        usual, others = _usual_and_other_parts(target)
        self._usual, self._others = (
            [_Part(_text_of(*writers), target, cache) for writers in parts] for parts in (usual, others)
        )
        self._addresses: dict[str, int] = {}
        self._cache, self._num_threads = cache, num_threads
        Library(str(pool_module(target)), target, cache)  # compiled here, so that whoever needs it finds it

    @cached_property
    def pool(self) -> Pool:
        """The threads; they begin when they are first wanted."""
        return Pool(self._num_threads, self.target, self._cache)

    def limit_threads(self, most: int) -> None:
        """Have no more of them, unless they are there already."""
        self._num_threads = min(self._num_threads, max(1, most))

    def compile_usual(self, is_enough: Callable[[], bool] = lambda: False) -> None:
        """What a model in its usual form wants, part by part until it is enough: so it is there when it is asked
        for."""
        for part in self._usual:
            if is_enough():
                return
            part.library  # noqa: B018 - that compiles it

    def address(self, name: str) -> int:
        """Of a kernel.

        Raises:
            KeyError: there is none of this name.
            LateKernelError: LLVM could not make it.
        """
        if name not in self._addresses:
            self._addresses[name] = self._found(name)
        return self._addresses[name]

    @property
    def most_rows(self) -> int:
        """Of a step of decodes: up to so many kernels are faster than modules with a library's products."""
        return most_rows_of(self.target)

    @property
    def has_prompts(self) -> bool:
        """Whether there are kernels of attention of many tokens."""
        return has_prompts(self.target)

    @property
    def has_long_products(self) -> bool:
        """Whether products of many rows with weights in bfloat16 are for them."""
        return long_products_are_fast(self.target)

    @property
    def has_many_bytes(self) -> bool:
        """Whether products of many rows with weights of 8 bits have a kernel of their own."""
        return has_many_bytes(self.target)

    @property
    def has_fast_tiles(self) -> bool:
        """Whether products of any number of rows are for the kernels that few rows have too."""
        return tiles_are_fast(self.target)

    @property
    def has_fast_bytes(self) -> bool:
        """Whether products of bytes are faster than those of floats by as much as bytes are smaller."""
        return self.target.is_x86

    @property
    def zero_of_8_bits(self) -> int:
        """See `packing.packed_weight`."""
        return zero_of(self.target, 8)

    def _found(self, name: str) -> int:
        part = next((part for part in (*self._usual, *self._others) if name in part.names), None)
        if part is None:
            raise KeyError(name)
        return part.library.address(name)


class _Part:
    """Kernels that are compiled together."""

    def __init__(self, text: str, target: CpuTarget, cache: ObjectCache) -> None:
        self._text, self._target, self._cache = text, target, cache
        self._lock = Lock()
        self._library: Library | None = None
        self.names = frozenset(re.findall(r"^define \w+ @(\w+)\(", text, re.MULTILINE))

    @property
    def library(self) -> Library:
        """Compiled now, if it is not yet; whoever comes meanwhile waits."""
        with self._lock:
            if self._library is None:
                try:
                    self._library = Library(self._text, self._target, self._cache)
                except _FAILURES as error:
                    _make.cache_clear()
                    _failed.append(_not_made(error))
                    raise LateKernelError(f"CPU kernels are missing, since {_failed[-1]}.") from error
            return self._library


def module_texts(target: CpuTarget) -> list[str]:
    """The IR of all kernels, in parts that are compiled one by one: first what models in the usual form want, dense
    and in 8 bits."""
    usual, others = _usual_and_other_parts(target)
    return [_text_of(*writers) for writers in (*usual, *others)]


_Writer = Callable[[Module], object]
_Writers = tuple[_Writer, ...]


def _text_of(*writers: _Writer) -> str:
    module = Module()
    for write in writers:
        write(module)
    return str(module)


def _usual_and_other_parts(target: CpuTarget) -> tuple[list[_Writers], list[_Writers]]:
    """What is written into each module."""
    whole = "bf16" if target.multiplies_bf16 else "f32"
    elements = DenseElement("f32"), bf16_element(target)
    dense = [partial(write_dense_product, target=target, element=each) for each in elements]
    attends = {each: (partial(write_attention, element=each),) for each in CACHE_ELEMENTS}
    rows = {each: (partial(write_rows, sink=each),) for each in sinks_of(target)}
    rare_rows = [] if target.multiplies_bf16 else [rows.pop(bf16_element(target).name)]
    forms = [(bits, minimums) for bits in (8, 4) for minimums in (False, True)]
    few_bits = [(partial(_write_few_bits, target=target, bits=bits, minimums=has),) for bits, has in forms]
    small: _Writers = (write_heads, write_merge, write_likely_columns, write_fit_4_bits, write_mixture)
    usual: list[_Writers] = [small, tuple(dense), attends.pop(whole)]
    others: list[_Writers] = []
    if has_prompts(target):
        prompts = {each: (partial(write_prompt_attention, target=target, element=each),) for each in WHOLE_ELEMENTS}
        usual.append(prompts.pop(whole))
        others += [(partial(write_long_product, target=target),), *prompts.values()]
    usual += [*rows.values(), few_bits[0]]
    if has_many_bytes(target):
        usual.append((partial(write_many_bytes_product, target=target),))
    return usual, [*others, *rare_rows, *few_bits[1:], *attends.values()]


def _write_few_bits(module: Module, *, target: CpuTarget, bits: int, minimums: bool) -> None:
    name = write_quantized_product(module, target, bits, minimums=minimums)
    write_expert_products(module, name)


def most_rows_of(target: CpuTarget) -> int:
    """See `CpuKernels.most_rows`: where registers are few, or there are matrix units, a library is soon faster."""
    return 128 if target.has_wide_registers and "amx-bf16" not in target.features else FEW_ROWS


def has_prompts(target: CpuTarget) -> bool:
    """Whether kernels of many rows are written for registers like its own."""
    return target.is_x86


def long_products_are_fast(target: CpuTarget) -> bool:
    """Whether products of many rows with weights in bfloat16 are quicker in float32, and by kernels of our own,
    than what a library makes of the processor's instructions for bfloat16.

    Sapphire Rapids without its matrix units, one core, nothing but registers: 185 GFLOP/s in float32, 93 by
    `vdpbf16ps`. Processors of AMD that have it start one every cycle, and matrix units are faster than either. With
    AVX2 there is no such instruction, and a library takes 7 times as long (Zen 3, 256 rows: 4.5 GMAC/s, and 34).
    """
    has_better = target.has_wide_registers and target.name.startswith("znver")
    return target.is_x86 and not has_better and "amx-bf16" not in target.features


def tiles_are_fast(target: CpuTarget) -> bool:
    """Whether `dense_tile` is nearly as quick as a library for any number of rows, so that whole steps may have it.

    Measured on a Zen 4 alone, one core, 128 rows: 104 GFLOP/s in float32 and 200 in bfloat16. oneDNN has 66 to 89
    and 181 to 200 there with weights as they are stored, 96 to 105 and 205 to 213 with a copy packed for itself.
    """
    return target.has_wide_registers and target.name.startswith("znver")


def cpu_kernels() -> CpuKernels | None:
    """Those of this process; None where torch has to do all. The first call takes up to some seconds."""
    made = _made()
    return made if isinstance(made, CpuKernels) else None


def objection() -> str:
    """Why there are none, to go after "since"; empty where there are."""
    made = _made()
    return made if isinstance(made, str) else ""


def most_rows() -> int:
    """Rows of a step of decodes, drafted ones included, that are no slower than they need be on this processor."""
    kernels = cpu_kernels()
    return FEW_ROWS if kernels is None else kernels.most_rows


def no_kernels_notice() -> str:
    """That there are none, why, and what to do, for people."""
    return (
        f"There are no CPU kernels here, since {objection()}: torch computes all, and takes longer. {_WHAT_TO_DO}"
    )


def prepare_in_background() -> None:
    """Compile while something else is done; whoever wants kernels waits for those alone."""
    thread = Thread(target=_prepare, name="compile cpu kernels", daemon=True)
    thread.start()
    atexit.register(_end, thread)


_ending = Event()
"""The process is about to end."""


def _prepare() -> None:
    kernels = cpu_kernels()
    if kernels is not None:
        with suppress(LateKernelError):  # whoever wants the kernel is told
            kernels.compile_usual(_ending.is_set)


def _end(thread: Thread) -> None:
    """LLVM is not to be in the midst of a part, of a second at most, when what it holds is given back."""
    _ending.set()
    thread.join()


def _made() -> CpuKernels | str:
    with _lock:
        return _make()


@cache
def _make() -> CpuKernels | str:
    target = host_target()
    if isinstance(target, str):
        return target
    if _failed:
        return _failed[0]
    try:
        return CpuKernels(target, num_compute_threads(), ObjectCache())
    except _FAILURES as error:
        return _not_made(error)


_FAILURES = (KernelError, KeyError, RuntimeError, OSError, AttributeError)
"""Of LLVM."""
_failed: list[str] = []
"""Why kernels that were wanted could not be made, to go after "since"."""


def _not_made(error: Exception) -> str:
    _log.warning("No CPU kernels: %s", error)
    return f"LLVM could not make them ({error!s:.200})"

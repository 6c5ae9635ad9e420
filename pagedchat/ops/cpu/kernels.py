"""All CPU kernels of this process and its threads, compiled when they are first wanted, or before, in the
background. Where there are none, it knows why.
"""

import logging
from functools import cache, cached_property
from threading import Lock, Thread

from pagedchat.errors import KernelError
from pagedchat.jit.cpu.cache import ObjectCache
from pagedchat.jit.cpu.ir import Module
from pagedchat.jit.cpu.library import Library
from pagedchat.jit.cpu.pool import Pool
from pagedchat.jit.cpu.pool_code import pool_module
from pagedchat.jit.cpu.target import CpuTarget, host_target
from pagedchat.jit.cpu.threads import num_compute_threads
from pagedchat.ops.cpu.attention import write_attention
from pagedchat.ops.cpu.dense_product import write_dense_product
from pagedchat.ops.cpu.heads import write_heads
from pagedchat.ops.cpu.long_product import write_long_product
from pagedchat.ops.cpu.prompt_attention import write_prompt_attention
from pagedchat.ops.cpu.quantized_product import write_quantized_product, zero_of
from pagedchat.ops.cpu.rows import write_rows

_WHAT_TO_DO = "pip install llvmlite, if that is missing; else a smaller model is quicker."
_log = logging.getLogger(__name__)
_lock = Lock()


class CpuKernels:
    """What programs are made of.

    Args:
        target: this machine's processor.
        num_threads: that compute, at most.
        cache: of compiled code.
    """

    def __init__(self, target: CpuTarget, num_threads: int, cache: ObjectCache) -> None:
        self.target = target
        self._libraries = [Library(text, target, cache) for text in module_texts(target)]
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

    def address(self, name: str) -> int:
        """Of a kernel."""
        if name not in self._addresses:
            self._addresses[name] = self._found(name)
        return self._addresses[name]

    @property
    def has_prompts(self) -> bool:
        """Whether there are kernels of attention of many tokens."""
        return is_wide(self.target)

    @property
    def has_long_products(self) -> bool:
        """Whether products of many rows with weights in bfloat16 are for them."""
        return long_products_are_fast(self.target)

    @property
    def zero_of_8_bits(self) -> int:
        """See `packing.packed_weight`."""
        return zero_of(self.target, 8)

    def _found(self, name: str) -> int:
        for library in self._libraries:
            try:
                return library.address(name)
            except KeyError:
                pass
        raise KeyError(name)


def module_texts(target: CpuTarget) -> list[str]:
    """The IR of all kernels, in parts that are compiled one by one."""
    products, quantized, others = Module(), Module(), Module()
    for element in ("f32", "bf16"):
        write_dense_product(products, target, element)
    for bits in (8, 4):
        for minimums in (False, True):
            write_quantized_product(quantized, target, bits, minimums=minimums)
    write_rows(others)
    write_heads(others)
    write_attention(others)
    texts = [str(products), str(quantized), str(others)]
    if is_wide(target):
        many = Module()
        write_long_product(many)
        write_prompt_attention(many)
        texts.append(str(many))
    return texts


def is_wide(target: CpuTarget) -> bool:
    """Whether registers are as wide and as many as kernels of many rows want them."""
    return target.is_x86 and target.register_bits == 512


def long_products_are_fast(target: CpuTarget) -> bool:
    """Whether products of many rows with weights in bfloat16 are quicker in float32, and by kernels of our own,
    than what a library makes of the processor's instructions for bfloat16.

    Sapphire Rapids without its matrix units, one core, nothing but registers: 185 GFLOP/s in float32, 93 by
    `vdpbf16ps`. Processors of AMD start one of those every cycle, and matrix units are faster than either.
    """
    return is_wide(target) and "amx-bf16" not in target.features and not target.name.startswith("znver")


def cpu_kernels() -> CpuKernels | None:
    """Those of this process; None where torch has to do all. The first call takes up to some seconds."""
    made = _made()
    return made if isinstance(made, CpuKernels) else None


def objection() -> str:
    """Why there are none, to go after "since"; empty where there are."""
    made = _made()
    return made if isinstance(made, str) else ""


def no_kernels_notice() -> str:
    """That there are none, why, and what to do, for people."""
    return (
        f"There are no CPU kernels here, since {objection()}: torch computes all, and takes longer. {_WHAT_TO_DO}"
    )


def prepare_in_background() -> None:
    """Compile while something else is done; whoever wants kernels waits for it."""
    Thread(target=cpu_kernels, name="compile cpu kernels", daemon=True).start()


def _made() -> CpuKernels | str:
    with _lock:
        return _make()


@cache
def _make() -> CpuKernels | str:
    target = host_target()
    if isinstance(target, str):
        return target
    try:
        return CpuKernels(target, num_compute_threads(), ObjectCache())
    except (KernelError, KeyError, RuntimeError, OSError, AttributeError) as error:
        _log.warning("No CPU kernels: %s", error)
        return f"LLVM could not make them ({error!s:.200})"

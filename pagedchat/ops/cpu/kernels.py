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
from pagedchat.ops.cpu.dense_elements import DenseElement, bf16_element
from pagedchat.ops.cpu.dense_product import write_dense_product
from pagedchat.ops.cpu.fit_4_bits import write_fit_4_bits
from pagedchat.ops.cpu.heads import write_heads
from pagedchat.ops.cpu.likely_columns import write_likely_columns
from pagedchat.ops.cpu.long_product import write_long_product
from pagedchat.ops.cpu.many_bytes_product import has_many_bytes, write_many_bytes_product
from pagedchat.ops.cpu.mixture_kernels import write_expert_products, write_mixture
from pagedchat.ops.cpu.prompt_attention import write_prompt_attention
from pagedchat.ops.cpu.quantized_product import write_quantized_product, zero_of
from pagedchat.ops.cpu.rows import write_rows

FEW_ROWS = 32
"""Up to so many kernels are quicker than a library, whatever the weight and the processor."""
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
        for library in self._libraries:
            try:
                return library.address(name)
            except KeyError:
                pass
        raise KeyError(name)


def module_texts(target: CpuTarget) -> list[str]:
    """The IR of all kernels, in parts that are compiled one by one."""
    products, quantized, others = Module(), Module(), Module()
    for element in (DenseElement("f32"), bf16_element(target)):
        write_dense_product(products, target, element)
    for bits in (8, 4):
        for minimums in (False, True):
            name = write_quantized_product(quantized, target, bits, minimums=minimums)
            write_expert_products(quantized, name)
    write_rows(others, target)
    write_heads(others)
    write_attention(others)
    write_likely_columns(others)
    write_mixture(others)
    write_fit_4_bits(others)
    texts = [str(products), str(quantized), str(others)]
    if has_prompts(target):
        many = Module()
        write_long_product(many, target)
        write_prompt_attention(many, target)
        if has_many_bytes(target):
            write_many_bytes_product(many, target)
        texts.append(str(many))
    return texts


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

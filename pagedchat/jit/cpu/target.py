"""Which processor kernels are compiled for: its name, its instruction sets, and what kernels make of those. Other
processors can be named too, to compile for them what cannot be run here. Imports LLVM when it is asked for.
"""

import sys
from dataclasses import dataclass
from functools import cache
from typing import Any


@dataclass(frozen=True, slots=True)
class CpuTarget:
    """A processor as LLVM and the kernels know it."""

    triple: str
    """Architecture and system, `x86_64-unknown-linux-gnu`."""
    name: str
    """LLVM's name of the processor."""
    features: frozenset[str]
    """Instruction sets that it has, by LLVM's names."""
    llvm: str
    """Version of the compiler."""

    @property
    def is_x86(self) -> bool:
        """64 bits of it."""
        return self.triple.startswith("x86_64")

    @property
    def is_arm(self) -> bool:
        """64 bits of it."""
        return self.triple.startswith(("aarch64", "arm64"))

    @property
    def register_bits(self) -> int:
        """Of the widest vectors that kernels use."""
        if not self.is_x86:
            return 128
        wide = {"avx512f", "avx512bw", "avx512vl", "avx512dq"}
        return 512 if wide <= self.features else 256

    @property
    def num_registers(self) -> int:
        """Vectors that fit into registers."""
        return 16 if self.is_x86 and self.register_bits == 256 else 32

    @property
    def has_wide_registers(self) -> bool:
        """32 of 512 bits."""
        return self.num_registers == 32 and self.register_bits == 512

    @property
    def multiplies_bf16(self) -> bool:
        """Whether an instruction that sums pairs of products in bfloat16 brings more than those in float32 do.

        Those of AMD start one wherever they could start one of float32, and it is twice as much; those of Intel
        start one every other cycle and four of float32. One core, nothing but registers: 117 GFLOP/s in float32 and
        236 by `vdpbf16ps` on a Zen 4, 185 and 93 on Sapphire Rapids without its matrix units.
        """
        return self.register_bits == 512 and "avx512bf16" in self.features and self.name.startswith("znver")

    @property
    def dot(self) -> str:
        """How four products of bytes are summed: "vnni512", "vnni", "sdot", "pairs" (AVX2) or "plain"."""
        if self.is_x86:
            if self.register_bits == 512 and "avx512vnni" in self.features:
                return "vnni512"
            has_256 = "avxvnni" in self.features or {"avx512vnni", "avx512vl"} <= self.features
            return "vnni" if has_256 else "pairs"
        return "sdot" if self.is_arm and "dotprod" in self.features else "plain"

    @property
    def objection(self) -> str:
        """Why kernels are not for it, to go after "since"; empty where they are."""
        if self.is_x86:
            missing = {"avx2", "fma", "f16c"} - self.features
            return f"the processor lacks {', '.join(sorted(missing))}" if missing else ""
        return (
            "" if self.is_arm else f"kernels are written for x86-64 and arm64, not for {self.triple.split('-')[0]}"
        )

    @property
    def instruction_sets(self) -> str:
        """What kernels use of it, for people."""
        if not self.is_x86:
            return "NEON, dot products" if self.dot == "sdot" else "NEON"
        width = "AVX-512" if self.register_bits == 512 else "AVX2"
        return f"{width}, VNNI" if self.dot.startswith("vnni") else width

    @property
    def feature_text(self) -> str:
        """As LLVM takes it. Vectors of 512 bits are wanted where kernels have them: LLVM would halve them."""
        wide = ["-prefer-256-bit"] if self.is_x86 and self.register_bits == 512 else []
        return ",".join([f"+{name}" for name in sorted(self.features)] + wide)


@cache
def binding() -> Any:
    """LLVM, ready for all its architectures.

    Raises:
        ImportError: it is not installed.
        OSError: it cannot be loaded.
    """
    import llvmlite.binding as llvm  # noqa: PLC0415 - tens of milliseconds, and not everywhere there

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm


@cache
def host_target() -> CpuTarget | str:
    """The processor of this machine; where kernels are not for it, why, to go after "since"."""
    if sys.platform not in ("linux", "darwin"):
        return "its threads are written for Linux and macOS"
    try:
        llvm = binding()
        features = frozenset(name for name, there in llvm.get_host_cpu_features().items() if there)
    except (ImportError, OSError, RuntimeError) as error:
        return f"LLVM cannot be had ({error})"
    triple, version = llvm.get_process_triple(), ".".join(str(part) for part in llvm.llvm_version_info)
    if sys.platform == "darwin" and triple.startswith(("arm64", "aarch64")):
        features |= {"neon", "dotprod"}  # all of them have these, whether or not the system says so
    target = CpuTarget(triple, llvm.get_host_cpu_name(), features, version)
    return target.objection or target

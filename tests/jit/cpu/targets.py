"""Processors to compile for, whatever this machine is."""

from pagedchat.jit.cpu.target import CpuTarget

AVX512 = CpuTarget(
    "x86_64-unknown-linux-gnu",
    "icelake-server",
    frozenset({"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni"}),
    "any",
)
ZEN4 = CpuTarget("x86_64-unknown-linux-gnu", "znver4", AVX512.features | {"avx512bf16"}, "any")
AVX2 = CpuTarget("x86_64-unknown-linux-gnu", "haswell", frozenset({"avx2", "fma", "f16c"}), "any")
AVX_VNNI = CpuTarget("x86_64-unknown-linux-gnu", "alderlake", frozenset({"avx2", "fma", "f16c", "avxvnni"}), "any")
ARM = CpuTarget("aarch64-unknown-linux-gnu", "neoverse-n1", frozenset({"neon", "dotprod"}), "any")
MAC = CpuTarget("arm64-apple-darwin", "apple-m1", frozenset({"neon", "dotprod"}), "any")
OLD_ARM = CpuTarget("aarch64-unknown-linux-gnu", "cortex-a72", frozenset({"neon"}), "any")

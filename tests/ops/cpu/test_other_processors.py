"""All kernels compile for processors that this machine is not, with the instructions that those are bought for."""

import re
from dataclasses import replace

import pytest

from pagedchat.jit.cpu.target import CpuTarget
from tests.jit.cpu.targets import ARM, AVX2, AVX512, AVX_VNNI, MAC, OLD_ARM, ZEN4

pytest.importorskip("llvmlite")

from pagedchat.jit.cpu.compiler import compile_assembly, compile_object
from pagedchat.ops.cpu.kernels import module_texts, most_rows_of

CASES = {
    "avx512": (AVX512, r"vpdpbusd.*zmm", r"vfmadd\w+ps.*zmm", b"\x7fELF"),
    "zen4": (ZEN4, r"vdpbf16ps.*zmm", r"vfmadd\w+ps.*zmm", b"\x7fELF"),
    "avx2": (AVX2, r"vpmaddwd.*ymm", r"vfmadd\w+ps.*ymm", b"\x7fELF"),
    "avx-vnni": (AVX_VNNI, r"vpdpbusd.*ymm", r"vfmadd\w+ps.*ymm", b"\x7fELF"),
    "arm": (ARM, r"\bsdot\b", r"\bfmla\b", b"\x7fELF"),
    "mac": (MAC, r"\bsdot", r"\bfmla", b"\xcf\xfa\xed\xfe"),
    "old arm": (OLD_ARM, r"\bmla\b", r"\bfmla\b", b"\x7fELF"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_kernels_have_the_instructions_of_the_processor(case: str) -> None:
    target, dots, floats, _ = CASES[case]
    text = "\n".join(compile_assembly(each, target) for each in module_texts(target))
    assert len(re.findall(dots, text)) > 50
    assert len(re.findall(floats, text)) > 200
    called = set(re.findall(r"\t(?:callq|bl)[ \t]+_?([a-z]\w+)", text))
    defined = set(re.findall(r"^_?([a-z]\w+):", text, re.MULTILINE))
    assert called <= defined  # nothing of a mathematical library, which would have to be found


@pytest.mark.parametrize("case", ["avx2", "arm", "mac"])
def test_object_files_are_of_the_system(case: str) -> None:
    target, _, _, magic = CASES[case]
    assert compile_object(module_texts(target)[0], target).startswith(magic)


def test_inputs_are_rounded_where_that_is_twice_as_fast_and_steps_have_rows_where_registers_are_many() -> None:
    slow = replace(ZEN4, name="cooperlake")
    assert [each.multiplies_bf16 for each in (ZEN4, slow, AVX512, AVX2, ARM)] == [True, False, False, False, False]
    matrix_units = replace(slow, features=slow.features | {"amx-bf16"})
    assert [most_rows_of(each) for each in (ZEN4, slow, AVX2, ARM, matrix_units)] == [128, 128, 32, 32, 32]


def test_processors_that_kernels_are_not_for_are_named() -> None:
    old = CpuTarget("x86_64-unknown-linux-gnu", "nehalem", frozenset({"sse4.2"}), "any")
    assert old.objection == "the processor lacks avx2, f16c, fma"
    assert "riscv64" in CpuTarget("riscv64-unknown-linux-gnu", "generic", frozenset(), "any").objection
    assert not ARM.objection
    assert (AVX512.dot, AVX2.dot, AVX_VNNI.dot, ARM.dot, OLD_ARM.dot) == (
        "vnni512",
        "pairs",
        "vnni",
        "sdot",
        "plain",
    )

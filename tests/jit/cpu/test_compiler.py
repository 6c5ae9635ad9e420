import pytest

from pagedchat.errors import KernelError
from pagedchat.jit.cpu.compiler import compile_assembly
from pagedchat.jit.cpu.ir import FLOAT, I64, PTR, Module, literal, vector
from tests.jit.cpu.targets import AVX2

pytest.importorskip("llvmlite")


def test_what_llvm_refuses_is_one_sentence() -> None:
    with pytest.raises(KernelError, match="LLVM refuses a CPU kernel"):
        compile_assembly("define void @f() { ret i32 }", AVX2)


def test_constants_are_rounded_to_their_type() -> None:
    assert literal(I64, 3) == "3"
    assert literal(vector(4, FLOAT), 0.1) == "splat (float 0x3FB99999A0000000)"


def test_function_becomes_instructions() -> None:
    module = Module()
    f = module.function("scale", [("numbers", PTR), ("count", I64)])
    with f.loop(0, f.parameter("count"), 8) as i:
        at = f.at(f.parameter("numbers"), i, FLOAT)
        f.store(f.load(vector(8, FLOAT), at) * 3.0, at)
    f.finish()
    text = compile_assembly(str(module), AVX2)
    assert "scale:" in text
    assert "vmulps" in text

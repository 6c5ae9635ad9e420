"""IR to machine code, by LLVM in this process. Knows no kernel; it is seconds for all of them, so see `cache`."""

from typing import Any

from pagedchat.errors import KernelError
from pagedchat.jit.cpu.target import CpuTarget, binding

_SPEED = 2
"""LLVM's level of optimisation. What kernels want unrolled and in vectors they write so themselves."""


def compile_object(text: str, target: CpuTarget) -> bytes:
    """An object file.

    Raises:
        KernelError: LLVM refuses the text; it says why.
    """
    return bytes(_machine(target).emit_object(_optimized(text, target)))


def compile_assembly(text: str, target: CpuTarget) -> str:
    """The same for people.

    Raises:
        KernelError: as above.
    """
    return str(_machine(target).emit_assembly(_optimized(text, target)))


def _optimized(text: str, target: CpuTarget) -> Any:
    llvm, machine = binding(), _machine(target)
    try:
        module = llvm.parse_assembly(f'target triple = "{target.triple}"\n{text}')
        module.verify()
    except RuntimeError as error:
        raise KernelError(f"LLVM refuses a CPU kernel: {error!s:.400}") from error
    options = llvm.create_pipeline_tuning_options(speed_level=_SPEED)
    options.loop_vectorization = options.slp_vectorization = False
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


def _machine(target: CpuTarget) -> Any:
    llvm = binding()
    named = llvm.Target.from_triple(target.triple)
    return named.create_target_machine(
        cpu=target.name, features=target.feature_text, opt=_SPEED, reloc="pic", codemodel="small", jit=False
    )

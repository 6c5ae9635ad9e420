"""What the kernels for weights of few bits are compiled for. Loads no torch.

Sizes are a model's own: those here stand for all of them in tests and in `doctor --compile`.
"""

from pagedchat.jit.kernel_file import KernelFile, Limit, Tuning, Use
from pagedchat.ops.common.choices import (
    H200_MULTIPROCESSORS,
    H200_SHARED_BYTES,
    NO_BFLOAT16,
    TENSOR_CORE_ELEMENTS,
    TURING,
)
from pagedchat.ops.quantized.few_bits_plan import WEIGHT_KINDS, plan_few_bits

_NEEDS_AMPERE = Limit("a ring in shared memory needs asynchronous copies, from sm_80 on", TURING)


def _product(kind: str, out_features: int, num_rows: int) -> Tuning:
    plan = plan_few_bits(kind, 4096, out_features, num_rows, H200_MULTIPROCESSORS, H200_SHARED_BYTES)
    assert plan is not None  # noqa: S101 - these sizes have one
    return Tuning(plan.constants)


KERNELS = (
    KernelFile(
        "few_bits_linear",
        ("few_bits_linear",),
        Use.CAPTURED_STEPS,
        {"ELEMENT": TENSOR_CORE_ELEMENTS, "SCALES": (0, 1, 2)},
        (_product("int8", 4096, 8), _product("fp8", 4096, 24), _product("int4", 28672, 64)),
        (_NEEDS_AMPERE,),
    ),
    KernelFile(
        "dequantize",
        ("dequantize",),
        Use.CAPTURED_STEPS,
        {"ELEMENT": TENSOR_CORE_ELEMENTS, "WEIGHT_KIND": tuple(WEIGHT_KINDS.values())},
        limits=(NO_BFLOAT16,),
    ),
)

"""What the kernels for weights of few bits are compiled for. Loads no torch.

Sizes are a model's own: those here stand for all of them in tests and in `doctor --compile`.
"""

from pagedchat.jit.kernel_file import Choices, KernelFile, Limit, Tuning, Use
from pagedchat.ops.common.choices import (
    H200_MULTIPROCESSORS,
    H200_SHARED_BYTES,
    HOPPER_ONLY,
    NO_BFLOAT16,
    TENSOR_CORE_ELEMENTS,
    TURING,
)
from pagedchat.ops.quantized.few_bits_plan import plan_few_bits
from pagedchat.ops.quantized.weight_form import FEW_BITS, NUMBERS, Kind

NEEDS_RING = Limit("a ring in shared memory needs asynchronous copies, from sm_80 on", TURING)


def _product(kind: Kind, num_rows: int, *, warpgroups: bool) -> Tuning:
    sizes = 4096, 28672, num_rows, H200_MULTIPROCESSORS, H200_SHARED_BYTES
    plan = plan_few_bits(kind, *sizes, warpgroups=warpgroups)
    assert plan is not None and plan.warpgroups == warpgroups  # noqa: S101, PT018 - these sizes have one
    return Tuning(plan.constants)


_PRODUCT: Choices = {"ELEMENT": TENSOR_CORE_ELEMENTS, "SCALES": (0, 1, 2)}

KERNELS = (
    KernelFile(
        "few_bits_linear",
        ("few_bits_linear",),
        Use.CAPTURED_STEPS,
        _PRODUCT,
        tuple(_product(*sizes, warpgroups=False) for sizes in (("int8", 8), ("fp8", 24), ("int4", 64))),
        (NEEDS_RING,),
    ),
    KernelFile(
        "few_bits_warpgroups",
        ("few_bits_warpgroups", "lay_out_rows"),
        Use.CAPTURED_STEPS,
        _PRODUCT,
        tuple(_product(*sizes, warpgroups=True) for sizes in (("int8", 64), ("fp8", 48), ("int4", 32))),
        (HOPPER_ONLY,),
    ),
    KernelFile(
        "dequantize",
        ("dequantize",),
        Use.CAPTURED_STEPS,
        {"ELEMENT": TENSOR_CORE_ELEMENTS, "WEIGHT_KIND": tuple(NUMBERS[kind] for kind in FEW_BITS)},
        limits=(NO_BFLOAT16,),
    ),
)

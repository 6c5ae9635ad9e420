"""What the kernels of mixtures of experts are compiled for. Loads no torch.

Sizes are a model's own: those here stand for all of them in tests and in `doctor --compile`.
"""

from pagedchat.jit.kernel_file import Choices, KernelFile, Tuning, Use
from pagedchat.ops.common.choices import (
    ELEMENTS,
    FLAG,
    H200_SHARED_BYTES,
    HOPPER_ONLY,
    NO_BFLOAT16,
    TENSOR_CORE_ELEMENTS,
)
from pagedchat.ops.experts.expert_plan import (
    FEWEST_TILED_ROWS,
    TILED_ROWS,
    WarpgroupsPlan,
    plan_registers,
    plan_tiles,
)
from pagedchat.ops.experts.few_bits_tiles import TILE_ROWS, plan_tiles_of
from pagedchat.ops.quantized.kernels import NEEDS_RING

_PRODUCT: Choices = {"ELEMENT": TENSOR_CORE_ELEMENTS, "GATE": (0, 1, 2)}
_IN_REGISTERS = tuple(
    Tuning({"IN_FEATURES": width, **plan_registers(width, rows).constants})
    for width, rows in ((2048, 8), (768, 32))
)
_IN_TILES = tuple(
    Tuning({**plan_tiles(rows, H200_SHARED_BYTES).constants})
    for rows in (FEWEST_TILED_ROWS, TILED_ROWS, 2 * TILED_ROWS)
)

_OF_FEW_BITS = tuple(
    Tuning(plan_tiles_of(kind, rows, H200_SHARED_BYTES).constants)
    for kind, rows in (("int8", min(TILE_ROWS)), ("fp8", TILE_ROWS[2]), ("int4", max(TILE_ROWS)))
)

_ROUTES: Choices = {
    "ELEMENT": ELEMENTS, "NUM_EXPERTS": (128, 60, 8), "PER_TOKEN": (8, 4, 2), "RENORMALISED": FLAG,
}  # fmt: skip

KERNELS = (
    KernelFile("route_tokens", ("route_tokens",), Use.CAPTURED_STEPS, _ROUTES),
    KernelFile("route_few", ("route_few",), Use.CAPTURED_STEPS, _ROUTES),
    KernelFile("group_pairs", ("group_pairs",), Use.CAPTURED_STEPS),
    KernelFile("expert_linear", ("expert_linear",), Use.CAPTURED_STEPS, _PRODUCT, _IN_REGISTERS, (NO_BFLOAT16,)),
    KernelFile("expert_tiles", ("expert_tiles",), Use.CAPTURED_STEPS, _PRODUCT, _IN_TILES, (NO_BFLOAT16,)),
    KernelFile(
        "expert_warpgroups",
        ("expert_warpgroups",),
        Use.CAPTURED_STEPS,
        _PRODUCT,
        (Tuning({**WarpgroupsPlan().constants}),),
        (HOPPER_ONLY,),
    ),
    KernelFile(
        "expert_few_bits",
        ("expert_few_bits",),
        Use.CAPTURED_STEPS,
        {**_PRODUCT, "SCALES": (0, 1, 2)},
        _OF_FEW_BITS,
        (NEEDS_RING,),
    ),
    KernelFile("expert_simt", ("expert_simt",), Use.CAPTURED_STEPS, {"ELEMENT": ELEMENTS, "GATE": (0, 1, 2)}),
    KernelFile("sum_experts", ("sum_experts",), Use.CAPTURED_STEPS, {"ELEMENT": ELEMENTS, "PER_TOKEN": (8, 4, 2)}),
)

"""What the kernels of sums over ranks are compiled for. Loads no torch."""

from pagedchat.jit.kernel_file import KernelFile, Tuning, Use
from pagedchat.ops.common.choices import ELEMENTS, NORMS

RANKS = (2, 4, 8)
"""Numbers of ranks that there are kernels for."""

HOPS = (1, 2)
"""How often a number is sent on: to everybody, or to the one who sums it, who sends the sum."""

KERNELS = (
    KernelFile(
        "reduce_add_norm",
        ("reduce_add_norm",),
        Use.CAPTURED_STEPS,
        {"ELEMENT": ELEMENTS, "NORM": NORMS, "RANKS": RANKS, "HOPS": HOPS},
        (Tuning({}), *(Tuning({"UPDATE_NORM": kind}) for kind in NORMS[1:])),
    ),
)

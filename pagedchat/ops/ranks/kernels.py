"""What the kernels of sums over ranks are compiled for. Loads no torch."""

from pagedchat.jit.kernel_file import KernelFile, Tuning, Use
from pagedchat.ops.common.choices import ELEMENTS, NORMS

RANKS = (2, 4, 8)
"""Numbers of ranks that there are kernels for."""

KERNELS = (
    KernelFile(
        "reduce_add_norm",
        ("reduce_add_norm",),
        Use.CAPTURED_STEPS,
        {"ELEMENT": ELEMENTS, "NORM": NORMS, "RANKS": RANKS},
        (Tuning({}), *(Tuning({"UPDATE_NORM": kind}) for kind in NORMS[1:])),
    ),
)

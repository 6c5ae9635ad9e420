"""What the kernel of products by clusters is compiled for: some of the ways to cut them. Loads no torch."""

from pagedchat.jit.kernel_file import KernelFile, Tuning, Use
from pagedchat.ops.clusters.cluster_plan import ClusterPlan
from pagedchat.ops.common.choices import ACTIVATIONS, FLAG, HOPPER_ONLY, NORMS, TENSOR_CORE_ELEMENTS

_NORMS = tuple(kind for kind in NORMS if kind != 1)
"""None, and all but layer norms."""
_CUT = (
    ClusterPlan(64, 2, 8, 1, 4, 2),
    ClusterPlan(16, 1, 4, 1, 6, 2),
    ClusterPlan(64, 2, 2, 2, 4, 2),
    ClusterPlan(128, 2, 1, 2, 4, 1),
)

KERNELS = (
    KernelFile(
        "cluster_linear",
        ("cluster_linear",),
        Use.CAPTURED_STEPS,
        {
            "ELEMENT": TENSOR_CORE_ELEMENTS,
            "ACTIVATION": tuple(ACTIVATIONS.values()),
            "PAIRED": FLAG,
            "NORM": _NORMS,
        },
        tuple(Tuning(plan.constants) for plan in _CUT),
        (HOPPER_ONLY,),
    ),
)

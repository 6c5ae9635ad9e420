"""What the kernel of products by clusters is compiled for: some of the ways to cut them. Loads no torch."""

from pagedchat.jit.kernel_file import KernelFile, Tuning, Use
from pagedchat.ops.clusters.cluster_plan import plan_clusters
from pagedchat.ops.common.choices import (
    ACTIVATIONS,
    FLAG,
    H200_MULTIPROCESSORS,
    H200_SHARED_BYTES,
    HOPPER_ONLY,
    TENSOR_CORE_ELEMENTS,
)
from pagedchat.ops.quantized.weight_form import WHOLE, WeightForm


def _cut(in_features: int, out_features: int, num_tokens: int, *, paired: bool, form: WeightForm = WHOLE) -> Tuning:
    sizes = in_features, out_features, num_tokens, paired, H200_MULTIPROCESSORS, H200_SHARED_BYTES
    plan = plan_clusters(*sizes, form)
    assert plan is not None  # noqa: S101 - sizes of real models
    return Tuning(plan.constants)


_INT8, _FP8, _INT4 = WeightForm("int8"), WeightForm("fp8"), WeightForm("int4", 128, has_minimums=True)


_CUTS = (
    _cut(8960, 1536, 64, paired=False),
    _cut(8192, 2048, 16, paired=False),
    _cut(14336, 4096, 64, paired=False),
    _cut(4096, 6144, 32, paired=False),
    _cut(2048, 8192, 64, paired=True),
    _cut(4096, 4096, 64, paired=False, form=_INT8),
    _cut(4096, 14336, 16, paired=True, form=_INT8),
    _cut(14336, 4096, 32, paired=False, form=_FP8),
    _cut(4096, 14336, 64, paired=True, form=_INT4),
    _cut(4096, 6144, 16, paired=False, form=WeightForm("int8", 32)),
)

KERNELS = (
    KernelFile(
        "cluster_linear",
        ("cluster_linear",),
        Use.CAPTURED_STEPS,
        {"ELEMENT": TENSOR_CORE_ELEMENTS, "ACTIVATION": tuple(ACTIVATIONS.values()), "PAIRED": FLAG},
        _CUTS,
        (HOPPER_ONLY,),
    ),
)

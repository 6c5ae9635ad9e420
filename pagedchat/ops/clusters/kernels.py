"""What the kernel of products by clusters is compiled for: some of the ways to cut them. Loads no torch."""

from pagedchat.jit.kernel_file import Constants, KernelFile, Limit, Tuning, Use
from pagedchat.ops.clusters.cluster_plan import plan_clusters
from pagedchat.ops.common.choices import (
    ACTIVATIONS,
    FLAG,
    H200_MULTIPROCESSORS,
    H200_SHARED_BYTES,
    HOPPER_ONLY,
    NORMS,
    TENSOR_CORE_ELEMENTS,
)
from pagedchat.ops.quantized.weight_form import NUMBERS

_OF_WEIGHTS = {"WEIGHT_KIND": tuple(NUMBERS.values()), "SCALES": (0, 1, 2)}


def _cut(
    in_features: int,
    out_features: int,
    num_tokens: int,
    *,
    paired: bool,
    beside: int = 0,
    norm: Constants | None = None,
) -> Tuning:
    plan = plan_clusters(in_features, out_features, num_tokens, paired, H200_MULTIPROCESSORS, H200_SHARED_BYTES)
    assert plan is not None  # noqa: S101 - sizes of real models
    cut = {name: value for name, value in plan.constants.items() if name not in _OF_WEIGHTS}
    if norm is None:
        return Tuning({**cut, "BESIDE": beside})
    return Tuning({**cut, **norm}, {"WEIGHT_KIND": (NUMBERS["whole"],)})


_CUTS = (
    _cut(14336, 4096, 64, paired=False, norm={"NORM_AHEAD": NORMS[-1]}),
    _cut(896, 4864, 32, paired=True, norm={"NORM_DUE": 14}),
    _cut(8960, 1536, 64, paired=False),
    _cut(8192, 2048, 16, paired=False, beside=2),
    _cut(4096, 6144, 32, paired=False, beside=1),
    _cut(2048, 8192, 64, paired=True),
)

KERNELS = (
    KernelFile(
        "cluster_linear",
        ("cluster_linear",),
        Use.CAPTURED_STEPS,
        {"ELEMENT": TENSOR_CORE_ELEMENTS, "ACTIVATION": tuple(ACTIVATIONS.values()), "PAIRED": FLAG, **_OF_WEIGHTS},
        _CUTS,
        (
            HOPPER_ONLY,
            Limit(
                "weights of 16 bits have no scales",
                frozenset(),
                but=True,
                where={"WEIGHT_KIND": (NUMBERS["whole"],), "SCALES": (1, 2)},
            ),
        ),
    ),
)

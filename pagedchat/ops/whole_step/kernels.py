"""What the kernel of whole steps is compiled for, as the plan says for two models. Loads no torch.

Every model takes a variant of its own: these stand for all of them in tests and in `doctor --compile`.
"""

from pagedchat.jit.kernel_file import KernelFile, Limit, Tuning, Use
from pagedchat.ops.common.choices import (
    BLOCK_SIZES,
    H200_MULTIPROCESSORS,
    H200_SHARED_BYTES,
    NO_BULK_COPIES,
    TENSOR_CORE_ELEMENTS,
)
from pagedchat.ops.whole_step.plan import (
    ONE_TURN,
    PersistentPlan,
    PersistentShape,
    plan_clustered,
    plan_persistent,
)

_OPT_125M = PersistentShape(768, 3072, 12, 12, 64, 16, gated=False)
_SMOLLM_135M = PersistentShape(576, 1536, 9, 3, 64, 16, gated=True)
_LAYER_NORM, _RMS_NORM = 1, 2
_PLACE = (1, ONE_TURN, H200_MULTIPROCESSORS, H200_SHARED_BYTES)
"""One sequence on an H200."""
_TOO_FEW = "too few thread blocks are left for the residual stream"
_BY_BUCKET = {"TOKENS": (2, 4, 1), "SPLITS": (3, 1), "SCREENED": (1, 0), "RING": (8, 6), "SEATS": (1, 2)}
"""What one model has in several values."""


def _tuning(
    shape: PersistentShape,
    plan: PersistentPlan | None,
    vocab_size: int,
    norm: int,
    **where: tuple[int],
) -> Tuning:
    assert plan is not None  # noqa: S101 - these models have one
    screened = plan.screened(shape, 1, vocab_size, H200_SHARED_BYTES)
    assert screened is not None  # noqa: S101
    constants = {**shape.constants, **screened.constants, "NORM": norm, "ROTARY": int(norm == _RMS_NORM)}
    varied = {*_BY_BUCKET, "BLOCK_SIZE"}
    return Tuning({name: value for name, value in constants.items() if name not in varied}, where)


KERNELS = (
    KernelFile(
        "persistent_decode",
        ("persistent_decode",),
        Use.CAPTURED_STEPS,
        {"ELEMENT": TENSOR_CORE_ELEMENTS, "BLOCK_SIZE": BLOCK_SIZES, **_BY_BUCKET},
        (
            _tuning(_OPT_125M, plan_clustered(_OPT_125M, *_PLACE), 50_272, _LAYER_NORM, TOKENS=(1,), SPLITS=(1,)),
            _tuning(_OPT_125M, plan_persistent(_OPT_125M, *_PLACE), 50_272, _LAYER_NORM),
            _tuning(_SMOLLM_135M, plan_persistent(_SMOLLM_135M, *_PLACE), 49_152, _RMS_NORM),
        ),
        (
            NO_BULK_COPIES,
            *(
                Limit(why, frozenset(), but=True, where=where)
                for why, where in (
                    (_TOO_FEW, {"TOKENS": [2, 4], "SPLITS": [3], "NUM_HEADS": [12]}),
                    (_TOO_FEW, {"TOKENS": [4], "SEATS": [1], "NUM_HEADS": [12]}),
                    ("there is a seat for every token", {"TOKENS": [1, 2], "SEATS": [2]}),
                    ("a product has columns for the digits of two tokens", {"TOKENS": [4], "SCREENED": [1]}),
                )
            ),
            Limit("a layer's weights do not fit into shared memory", frozenset({"sm_120"})),
        ),
    ),
)

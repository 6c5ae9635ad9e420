"""What the kernel of all layers is compiled for, as the plan says for three models. Loads no torch.

Every model takes a variant of its own: these stand for all of them in tests and in `doctor --compile`.
"""

from pagedchat.jit.kernel_file import Choices, KernelFile, Limit, Tuning, Use
from pagedchat.ops.all_layers.plan import plan_layers
from pagedchat.ops.all_layers.shape import LayersShape
from pagedchat.ops.common.choices import (
    ACTIVATIONS,
    BLOCK_SIZES,
    H200_MULTIPROCESSORS,
    H200_SHARED_BYTES,
    NO_BULK_COPIES,
    TENSOR_CORE_ELEMENTS,
)
from pagedchat.ops.quantized.weight_form import WeightForm

_BY_BUCKET: Choices = {"TOKENS": (2, 1), "SPLITS": (1, 2, 4, 8), "HEAD_NORM": (0, 2)}
"""What one model has in several values, and what models differ in besides their shapes."""
_TOO_MANY: Choices = {"TOKENS": (2,), "SPLITS": (8,)}


def _tuning(shape: LayersShape) -> Tuning:
    plan = plan_layers(shape, 1, 256, H200_MULTIPROCESSORS, H200_SHARED_BYTES)
    assert plan is not None  # noqa: S101 - these models have one
    constants = {**shape.constants, **plan.constants, "NORM": 2, "ROTARY": 1, "ACTIVATION": ACTIVATIONS["silu"]}
    varied = {*_BY_BUCKET, "BLOCK_SIZE"}
    tuned = {name: value for name, value in constants.items() if name not in varied}
    return Tuning(tuned, {"TOKENS": (1,)} if shape.form.few else {})


_INT8, _FP8, _INT4 = WeightForm("int8"), WeightForm("fp8"), WeightForm("int4", 128, has_minimums=True)
KERNELS = (
    KernelFile(
        "streamed_layers",
        ("streamed_layers",),
        Use.CAPTURED_STEPS,
        {"ELEMENT": TENSOR_CORE_ELEMENTS, "BLOCK_SIZE": BLOCK_SIZES, **_BY_BUCKET},
        (
            _tuning(LayersShape(4096, 14336, 32, 8, 128, 16, _INT4, _INT4, _INT8)),  # Llama-3.1-8B
            _tuning(LayersShape(4096, 14336, 32, 8, 128, 16, _FP8, _FP8)),
            _tuning(LayersShape(896, 4864, 14, 2, 64, 16)),  # Qwen2.5-0.5B
            _tuning(LayersShape(2048, 6144, 16, 8, 128, 16)),  # Qwen3-1.7B
        ),
        (
            NO_BULK_COPIES,
            Limit("shared memory has no room for the ring", frozenset({"sm_120"})),
            Limit("a product of tensor cores has 8 rows for splits", frozenset(), but=True, where=_TOO_MANY),
        ),
    ),
)

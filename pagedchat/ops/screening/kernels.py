"""What the kernels of screened vocabularies are compiled for. Loads no torch."""

from pagedchat.jit.kernel_file import Choices, KernelFile, Tuning, Use
from pagedchat.ops.common.choices import (
    HOPPER_ONLY,
    NORMS,
    TENSOR_CORE_ELEMENTS,
)
from pagedchat.ops.screening.plan import COLUMNS, LIST_CLUSTERS, STAGES

_ELEMENTS: Choices = {"ELEMENT": TENSOR_CORE_ELEMENTS}


KERNELS = (
    KernelFile(
        "screen_rows",
        ("screen_rows",),
        Use.CAPTURED_STEPS,
        {**_ELEMENTS, "NORM": NORMS},
        limits=(HOPPER_ONLY,),
    ),
    KernelFile(
        "screen_vocabulary",
        ("screen_vocabulary",),
        Use.CAPTURED_STEPS,
        {**_ELEMENTS, "TOKENS": COLUMNS},
        (Tuning({"STAGES": STAGES}),),
        (HOPPER_ONLY,),
    ),
    KernelFile("choose_screened", ("choose_screened",), Use.CAPTURED_STEPS, _ELEMENTS, limits=(HOPPER_ONLY,)),
    KernelFile(
        "list_screened",
        ("list_screened",),
        Use.CAPTURED_STEPS,
        {**_ELEMENTS, "CLUSTER": LIST_CLUSTERS},
        limits=(HOPPER_ONLY,),
    ),
)

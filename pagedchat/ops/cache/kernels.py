"""What the kernels of the cache are compiled for. Loads no torch."""

from pagedchat.jit.kernel_file import Choices, KernelFile, Tuning, Use
from pagedchat.ops.common.choices import BYTES, CACHE, FLAG

_HEADS: Choices = {**CACHE, "ROTARY": FLAG, "HEAD_NORM": (0, 1, 2, 3), "BY_SLOT": FLAG}
_TURNED: Choices = {"ROTARY": (1,)}
_HEAD_TUNINGS = (
    Tuning({}, {"HEAD_NORM": (0, 1, 2)}),
    Tuning({"NORM": 1, "TURNED": 32}, {**_TURNED, "HEAD_NORM": (1, 2, 3)}),
    Tuning({"NORM": 4}, {"HEAD_NORM": (1, 2)}),
    Tuning({"NORM": 3}, {"HEAD_NORM": (2, 3)}),
    Tuning({"TURNED": 32}, {**_TURNED, "HEAD_NORM": (0, 1)}),
)
"""Heads of the kind that most models have, other norms, and heads of which a part is turned."""

KERNELS = (
    KernelFile("reshape_and_cache", ("reshape_and_cache", "reshape_and_cache_runs"), Use.ANY_MODEL, CACHE),
    KernelFile("gather_cached_kv", ("gather_cached_kv",), Use.LIBRARY, CACHE),
    KernelFile("rows_to_bytes", ("rows_to_bytes",), Use.ANY_MODEL, BYTES),
    KernelFile(
        "heads_to_bytes",
        ("heads_to_bytes",),
        Use.CAPTURED_STEPS,
        {**BYTES, "ROTARY": FLAG, "HEAD_NORM": (0, 1, 3), "BY_SLOT": FLAG},
        (
            Tuning({}, {"HEAD_NORM": (0, 1)}),
            Tuning({"NORM": 1, "TURNED": 32}, {**_TURNED, "HEAD_NORM": (1, 3)}),
            Tuning({"NORM": 4}, {"HEAD_NORM": (1,)}),
            Tuning({"NORM": 3}, {"HEAD_NORM": (3,)}),
            Tuning({"TURNED": 32}, {**_TURNED, "HEAD_NORM": (0, 1)}),
        ),
    ),
    KernelFile("copy_blocks", ("copy_blocks",), Use.ANY_MODEL),
    KernelFile("move_beams", ("move_beams",), Use.WHERE_ASKED),
    KernelFile("swap_blocks", ("swap_blocks",), Use.ANY_MODEL),
    KernelFile("heads_to_cache", ("heads_to_cache",), Use.CAPTURED_STEPS, _HEADS, _HEAD_TUNINGS),
)

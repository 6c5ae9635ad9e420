"""What the tests of kernels for few bits have in common: random weights of every form, and where kernels run."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch

from pagedchat.ops.quantized import few_bits_linear, few_bits_plan
from pagedchat.ops.quantized.quantize import quantize
from pagedchat.ops.quantized.weight import FP8, QuantizedWeight
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import normal
from tests.tools.emulator_case import needs_compiler
from tools.emulator.ops import kernels_on_cpu

FORMATS = {
    "int8": ("int8", 0),
    "int8 in groups": ("int8", 32),
    "fp8": ("fp8", 0),
    "fp8 in groups": ("fp8", 64),
    "int4": ("int4", 32),
    "int4 in large groups": ("int4", 128),
    "int4 without minimums": ("int4 without minimums", 64),
}
"""Kind, and elements of a group; 0: a whole row."""
WHERE = [pytest.param("emulated", marks=needs_compiler), *DEVICES]


@contextmanager
def device_of(where: str) -> Iterator[str]:
    """`"emulated"`: the kernel on tensors of the CPU, by a few thread blocks; `"cpu"`: torch."""
    with kernels_on_cpu(seed=1, num_multiprocessors=5) if where == "emulated" else nullcontext():
        yield "cpu" if where == "emulated" else where


def weight_of(kind: str, group: int, out_features: int, in_features: int, device: str) -> QuantizedWeight:
    """Random, so that products are around one."""
    group = group or in_features
    values = normal(out_features, in_features, device="cpu", dtype=torch.float32, scale=in_features**-0.5)
    if kind == "fp8":
        groups = values.view(out_features, -1, group)
        scales = (groups.abs().amax(-1) / 448).half()
        digits = (groups / scales.float().unsqueeze(-1)).flatten(1).to(FP8)
        few = QuantizedWeight(8, group, digits, scales)
    else:
        few = quantize(values, 8 if kind == "int8" else 4, group)
    minimums = None if few.minimums is None or "without" in kind else few.minimums.to(device)
    return QuantizedWeight(few.bits, group, few.digits.to(device), few.scales.to(device), minimums)


@contextmanager
def small_weights_like_large(*, warpgroups: bool, most_rows: int = 64) -> Iterator[None]:
    """By products of warpgroups or never, and up to so many rows by launches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(few_bits_plan, "_MANY_ELEMENTS", 0 if warpgroups else 1 << 40)
        patch.setattr(few_bits_plan, "_FEW_ROWS", {False: 0, True: 0})
        patch.setattr(few_bits_linear, "most_rows", lambda *_: most_rows)
        few_bits_plan.plan_few_bits.cache_clear()
        yield
    few_bits_plan.plan_few_bits.cache_clear()

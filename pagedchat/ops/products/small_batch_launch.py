"""Which kernel makes a product over a few tokens of a decode step, and how it is launched.

There are two of each: one whose thread blocks take their weights into registers, and one that streams large weights
through shared memory, and those of few bits. Both take the same arguments, which only the op knows; the second one
scales besides.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pagedchat.jit.arguments import Argument
from pagedchat.jit.driver import gpu
from pagedchat.jit.launch import Kernel, get_kernel
from pagedchat.jit.variant import Constant
from pagedchat.ops.common.launch import address, can_overlap, element_name, stream_of
from pagedchat.ops.common.norm import Norm
from pagedchat.ops.products.few_rows_plan import FewRowsPlan, plan_few_rows
from pagedchat.ops.products.small_batch_plan import TILE_ROWS
from pagedchat.ops.products.streamed_plan import UNIT, StreamPlan
from pagedchat.ops.quantized.weight import QuantizedWeight, Weight, form_of

STREAMED = {"small_batch_linear": "streamed_linear", "qkv_to_cache": "streamed_qkv"}
"""Kernels that take their weights into registers, with those that stream them."""


@dataclass(frozen=True, slots=True)
class ProductLaunch:
    """A variant, and the size of its launch."""

    kernel: Kernel
    grid: int
    num_threads: int
    shared_bytes: int = 0
    scales: tuple[Argument, ...] = ()
    """The last arguments of kernels that stream."""

    def run(self, args: Sequence[Argument], rows: torch.Tensor, overlap: bool) -> None:
        """Queue it.

        Args:
            args: of the kernel, but for `scales`.
            rows: on its GPU.
            overlap: it may begin before the kernel before it has ended, where the GPU can do that.
        """
        self.kernel.launch(
            self.grid,
            self.num_threads,
            (*args, *self.scales),
            stream=stream_of(rows),
            shared_bytes=self.shared_bytes,
            overlap=overlap and can_overlap(rows.device),
        )


def plan_few(rows: torch.Tensor, weight: Weight, norm: Norm | None) -> FewRowsPlan:
    """What is to make the product of `rows` `[num_tokens, in_features]` and `weight` `[num_rows, in_features]`."""
    on, form = gpu(rows.device.index), form_of(weight)
    return plan_few_rows(rows.shape[1], len(weight), len(rows), normed=norm is not None, gpu=on, form=form)


def digits_of(weight: Weight) -> int:
    """Where the numbers of a weight are."""
    return weight.digits.data_ptr() if isinstance(weight, QuantizedWeight) else weight.data_ptr()


def product_launch(
    stem: str,
    plan: FewRowsPlan,
    rows: torch.Tensor,
    weight: Weight,
    norm: Norm | None,
    most_blocks: int | None = None,
    **constants: Constant,
) -> ProductLaunch | None:
    """The launch of the kernel `stem`, or of the one that streams; None where a library multiplies.

    Args:
        stem: one of `STREAMED`.
        plan: of the product.
        rows: `[num_tokens, in_features]`, the input.
        weight: `[num_rows, in_features]`.
        norm: that goes along.
        most_blocks: thread blocks of a kernel that streams; one a multiprocessor by default.
        constants: of both kernels, besides those of the product.
    """
    if isinstance(plan.plan, StreamPlan):
        return streamed_launch(STREAMED[stem], plan.plan, rows, weight, norm, most_blocks, **constants)
    if plan.plan is None:
        return None
    known = product_constants(rows, norm)
    kernel = get_kernel(stem, rows.device.index, stem, **known, **plan.plan.constants, **constants)
    return ProductLaunch(kernel, weight.shape[0] // TILE_ROWS, plan.plan.num_threads)


def streamed_launch(
    stem: str,
    plan: StreamPlan,
    rows: torch.Tensor,
    weight: Weight,
    norm: Norm | None,
    most_blocks: int | None = None,
    **constants: Constant,
) -> ProductLaunch:
    """The launch of the kernel `stem`, which streams; arguments as of `product_launch`."""
    known = product_constants(rows, norm)
    kernel = get_kernel(stem, rows.device.index, stem, **known, **plan.constants, **constants)
    shared = plan.shared_bytes(norm is not None)
    kernel.allow_shared(shared)
    kernel.prefer_shared()
    grid = min(-(-len(weight) // UNIT), most_blocks or gpu(rows.device.index).num_multiprocessors)
    few = weight if isinstance(weight, QuantizedWeight) else None
    scales = (address(few.scales), address(few.minimums)) if few is not None else (0, 0)
    return ProductLaunch(kernel, grid, plan.num_threads, shared, scales)


def product_constants(rows: torch.Tensor, norm: Norm | None) -> dict[str, Constant]:
    """What every kernel with such a product wants to know."""
    return {
        "ELEMENT": element_name(rows.dtype),
        "IN_FEATURES": rows.shape[1],
        "NORM": norm.constant if norm else 0,
    }

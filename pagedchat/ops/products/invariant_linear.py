"""Linear layers in which a row's numbers do not depend on how many other rows there are, bit for bit.

On tensor cores an order of sums of our own, the same for every number of rows. Elsewhere torch, whose library is
given the same number of rows each time. Either says of what type it is; knows no models.
"""

from functools import cache

import torch
from torch.nn import functional

from pagedchat.jit.driver import gpu
from pagedchat.jit.launch import get_kernel, i32
from pagedchat.ops.common.checks import check_same_type, check_shape
from pagedchat.ops.common.launch import (
    address,
    can_overlap,
    ceil_div,
    element_name,
    has_tensor_cores,
    on_cuda,
    stream_of,
)
from pagedchat.ops.products.invariant_plan import PIECE, InvariantPlan, plan_invariant

NAME = "invariant_linear"
TORCH_ROWS = (16, 64)
"""Rows that a product of torch has: the first number always, the second where that turns out to give the same."""


def invariant_linear(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *, overlap: bool = False
) -> torch.Tensor:
    """`rows @ weight.T + bias`, each row as if it were alone.

    Args:
        rows: `[num_rows, in_features]`.
        weight: `[out_features, in_features]`.
        bias: `[out_features]`.
        overlap: the launch may begin before the kernel before it has ended, which makes the rows and waits for
            those before it.

    Returns:
        `[num_rows, out_features]`, of their type.

    Raises:
        ValueError: shapes or types that do not go together; on a GPU, none that the kernel has.
    """
    _check(rows, weight, bias)
    if not on_cuda(rows, weight):
        return _by_torch(rows, weight, bias)
    missing = missing_kernel(weight)
    if missing:
        raise ValueError(f"there is no kernel for these rows: {missing}")
    output = rows.new_empty(len(rows), len(weight))
    if len(rows) and len(weight):
        device = gpu(rows.device.index)
        num_multiprocessors, limit = device.num_multiprocessors, device.shared_bytes
        plan = plan_invariant(weight.shape[1], len(weight), len(rows), num_multiprocessors, limit)
        launch_plan(plan, output, rows.contiguous(), weight, bias, overlap=overlap)
    return output


def missing_kernel(weight: torch.Tensor) -> str:
    """Why the kernel does not multiply by a weight on a GPU, in words that go after "since"; empty if it does."""
    if not has_tensor_cores(weight):
        return f"this GPU's tensor cores do not multiply {str(weight.dtype).removeprefix('torch.')}"
    if weight.shape[1] % PIECE:
        return f"a width of {weight.shape[1]} is no multiple of {PIECE}"
    if not weight.is_contiguous() or weight.data_ptr() % 16:
        return "a weight is not laid out in whole pieces of 16 bytes"
    return ""


def launch_plan(
    plan: InvariantPlan,
    output: torch.Tensor,
    rows: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    overlap: bool = False,
) -> None:
    """Launch the kernel as a plan says; arguments as in `invariant_linear`, contiguous, with the result's place."""
    kernel = get_kernel(NAME, rows.device.index, NAME, ELEMENT=element_name(rows.dtype), **plan.constants)
    kernel.allow_shared(plan.shared_bytes)
    args = (
        output.data_ptr(),
        weight.data_ptr(),
        address(bias),
        rows.data_ptr(),
        i32(len(rows)),
        i32(weight.shape[1]),
        i32(len(weight)),
    )
    kernel.launch(
        (ceil_div(len(weight), plan.tile.weight_rows), ceil_div(len(rows), plan.tile.input_rows)),
        plan.num_threads,
        args,
        stream=stream_of(rows),
        shared_bytes=plan.shared_bytes,
        overlap=overlap and can_overlap(rows.device),
    )


def _check(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    check_shape("rows", rows, None, None)
    check_shape("weight", weight, None, rows.shape[1])
    check_same_type("weight", weight, rows)
    if bias is not None:
        check_shape("bias", bias, len(weight))
        check_same_type("bias", bias, rows)


# --- torch ----------------------------------------------------------------------------------------------


def _by_torch(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Always so many rows at a time: a library takes other ways for other numbers of them."""
    few, many = _rows_at_a_time(weight.shape[1], len(weight), rows.dtype)
    output = rows.new_empty(len(rows), len(weight))
    start = 0
    while start < len(rows):
        size = many if len(rows) - start > few else few
        part = rows[start : start + size]
        padded = functional.pad(part, (0, 0, 0, size - len(part))) if len(part) < size else part.contiguous()
        output[start : start + size] = functional.linear(padded, weight, bias)[: len(part)]
        start += size
    return output


@cache
def _rows_at_a_time(in_features: int, out_features: int, dtype: torch.dtype) -> tuple[int, int]:
    """Two numbers of rows that give every row the same result wherever it stands; found out by trial."""
    few, many = TORCH_ROWS
    rows, weight = telling_product(many, in_features, min(out_features, _TRIED_FEATURES), dtype)
    weight = weight.repeat(-(-out_features // len(weight)), 1)[:out_features].contiguous()
    if not all(_same_everywhere(rows[:size], weight) for size in TORCH_ROWS):
        return 1, 1
    together = functional.linear(rows, weight)
    apart = torch.cat([functional.linear(part, weight) for part in torch.split(rows, few)])
    return (few, many) if torch.equal(together, apart) else (few, few)


def telling_product(
    num_rows: int, in_features: int, out_features: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Random rows and a weight whose product says in what order it was added up: all sums come to nothing but for
    what is lost on the way. Of other sums 16 bits hide nearly all of that: two orders differed in 3 of 9,360."""
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(in_features // 2, generator=generator)

    def both(count: int, sign: int) -> torch.Tensor:
        half = torch.randn(count, in_features // 2, generator=generator)
        odd = half.new_zeros(count, in_features % 2)
        return torch.cat((half, sign * half[:, order], odd), dim=1).to(dtype)

    return both(num_rows, -1), both(out_features, 1)


_TRIED_FEATURES = 4096
"""Different rows of a weight in a trial; more are repetitions."""


def _same_everywhere(rows: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether one row gets the same numbers in every place, whatever stands beside it."""
    alike = functional.linear(rows[:1].expand_as(rows).contiguous(), weight)
    mixed = functional.linear(rows, weight)
    turned = functional.linear(rows.roll(1, 0), weight).roll(-1, 0)
    return torch.equal(alike, alike[:1].expand_as(alike)) and torch.equal(mixed, turned)

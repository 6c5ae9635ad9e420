"""Rows times a matrix of few bits on a GPU: 64 rows at a time, by a kernel that reads the matrix as it is stored.

For many rows the matrix is brought into 16 bits, a piece at a time, which a library multiplies. Knows no layers.
"""

import torch

from pagedchat.jit.driver import gpu
from pagedchat.jit.kernel_file import Constants
from pagedchat.jit.launch import get_kernel, i32
from pagedchat.ops.common.arrivals import arrival_counters
from pagedchat.ops.common.checks import check_same_type, check_shape
from pagedchat.ops.common.launch import (
    address,
    can_overlap,
    ceil_div,
    compute_capability,
    element_name,
    has_tensor_cores,
    on_cuda,
    stream_of,
)
from pagedchat.ops.quantized.dequantize import dequantize
from pagedchat.ops.quantized.few_bits_plan import (
    FIRST_GPU,
    MAX_TOKENS,
    FewBitsPlan,
    most_rows,
    objection_to_form,
    plan_few_bits,
    rows_of_piece,
)
from pagedchat.ops.quantized.linear import dequantized_linear
from pagedchat.ops.quantized.weight import QuantizedWeight

NAME, ON_HOPPER = "few_bits_linear", "few_bits_warpgroups"
_UNIT = 32
"""Elements that a thread lays out."""


def few_bits_linear(
    rows: torch.Tensor,
    weight: QuantizedWeight,
    bias: torch.Tensor | None = None,
    *,
    out: torch.Tensor | None = None,
    overlap: bool = False,
) -> torch.Tensor:
    """`rows @ weight.T + bias`.

    A row's numbers do not depend on the others of its launch, and are the same every time.

    Args:
        rows: `[num_rows, in_features]`; on a GPU float16 or bfloat16.
        weight: of as many `in_features`.
        bias: `[out_features]`, of the rows' type.
        out: `[num_rows, out_features]`, written, may be strided by row; a new one by default.
        overlap: the launch may begin before the kernel before it has ended, which makes the rows and waits for
            those before it.

    Returns:
        `out`, of the rows' type.

    Raises:
        ValueError: shapes or types that do not go together; on a GPU, none that the kernel has.
    """
    check_shape("rows", rows, None, weight.in_features)
    if bias is not None:
        check_shape("bias", bias, weight.out_features)
        check_same_type("bias", bias, rows)
    if not on_cuda(rows, weight.digits):
        product = dequantized_linear(rows, weight, bias=bias)
        return product if out is None else out.copy_(product)
    missing = missing_kernel(weight, rows.dtype)
    if missing:
        raise ValueError(f"there is no kernel for this weight: {missing}")
    output = rows.new_empty(len(rows), weight.out_features) if out is None else out
    if len(rows) > most_rows(weight.in_features, weight.out_features, gpu(rows.device.index).num_multiprocessors):
        return _by_library(rows, weight, bias, output)
    rows = rows.contiguous()
    for start in range(0, len(rows), MAX_TOKENS):
        part = slice(start, start + MAX_TOKENS)
        launch_plan(_plan(weight, len(rows[part])), output[part], rows[part], weight, bias, overlap=overlap)
    return output


def missing_kernel(weight: QuantizedWeight, dtype: torch.dtype) -> str:
    """Why the kernel does not multiply by a weight on its GPU, in words that go after "since"; empty if it does."""
    capability = compute_capability(weight.digits.device)
    if not has_tensor_cores(weight.digits.new_empty(0, dtype=dtype)) or capability < FIRST_GPU:
        return f"this GPU's tensor cores do not multiply {str(dtype).removeprefix('torch.')} with few bits"
    if objection := objection_to_form(weight.form, weight.in_features):
        return objection
    if not all(part.is_contiguous() for part in (weight.digits, weight.scales)) or weight.digits.data_ptr() % 16:
        return "a weight is not laid out in whole pieces of 16 bytes"
    return ""


def launch_plan(
    plan: FewBitsPlan,
    output: torch.Tensor,
    rows: torch.Tensor,
    weight: QuantizedWeight,
    bias: torch.Tensor | None,
    *,
    overlap: bool = False,
) -> None:
    """Launch the kernel as a plan says; arguments as in `few_bits_linear`, contiguous, with the result's place."""
    name = ON_HOPPER if plan.warpgroups else NAME
    constants = {"ELEMENT": element_name(rows.dtype), "SCALES": weight.form.scales, **plan.constants}
    kernel = get_kernel(name, rows.device.index, name, **constants)
    kernel.allow_shared(plan.shared_bytes)
    overlap = overlap and can_overlap(rows.device)
    inputs = _laid_out(plan, rows, constants, overlap) if plan.warpgroups else rows
    sums = torch.empty(plan.left_sums, dtype=torch.float32, device=rows.device)
    args = (
        output.data_ptr(),
        weight.digits.data_ptr(),
        weight.scales.data_ptr(),
        address(weight.minimums),
        address(bias),
        inputs.data_ptr(),
        sums.data_ptr(),
        arrival_counters(rows.device, 1 + plan.num_blocks, "products").data_ptr(),
        i32(len(rows)),
        i32(weight.in_features),
        i32(weight.out_features),
        i32(output.stride(0)),
        i32(weight.scales.shape[1]),
        i32((1 << 32) // weight.group_size + 1),
    )
    kernel.launch(
        (plan.num_blocks,),
        plan.num_threads,
        args,
        stream=stream_of(rows),
        shared_bytes=plan.shared_bytes,
        overlap=overlap or (plan.warpgroups and can_overlap(rows.device)),
    )


def _laid_out(plan: FewBitsPlan, rows: torch.Tensor, constants: Constants, overlap: bool) -> torch.Tensor:
    """Rows as products of warpgroups take them; the launch that follows waits for this one."""
    kernel = get_kernel(ON_HOPPER, rows.device.index, "lay_out_rows", **constants)
    laid_out = rows.new_empty(plan.laid_out(rows.shape[1]))
    num_units = len(laid_out) // _UNIT
    kernel.launch(
        (ceil_div(num_units, plan.num_threads),),
        plan.num_threads,
        (laid_out.data_ptr(), rows.data_ptr(), i32(len(rows)), i32(rows.shape[1])),
        stream=stream_of(rows),
        overlap=overlap,
    )
    return laid_out


def _plan(weight: QuantizedWeight, num_rows: int) -> FewBitsPlan:
    device = gpu(weight.digits.device.index)
    sizes = weight.in_features, weight.out_features, num_rows, device.num_multiprocessors, device.shared_bytes
    plan = plan_few_bits(weight.form.kind, *sizes, warpgroups=has_warpgroup_products(weight))
    assert plan is not None  # noqa: S101 - every GPU from sm_80 on has room for the smallest tile
    return plan


def has_warpgroup_products(weight: QuantizedWeight) -> bool:
    """Whether its GPU has them, as Hopper does and nothing before or since."""
    return compute_capability(weight.digits.device) == (9, 0)


def _by_library(
    rows: torch.Tensor, weight: QuantizedWeight, bias: torch.Tensor | None, output: torch.Tensor
) -> torch.Tensor:
    """Some rows of the weight at a time, which are still in the L2 cache when the library reads them."""
    at_once = rows_of_piece(weight.in_features, weight.out_features)
    place = rows.new_empty(at_once, weight.in_features)
    for start in range(0, weight.out_features, at_once):
        part = weight.rows(slice(start, start + at_once))
        columns = slice(start, start + part.out_features)
        floats = dequantize(part, place[: part.out_features]).T
        if bias is None:
            torch.mm(rows, floats, out=output[:, columns])
        else:
            torch.addmm(bias[columns], rows, floats, out=output[:, columns])
    return output

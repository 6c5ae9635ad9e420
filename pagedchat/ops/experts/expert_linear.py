"""The product of each pair of a token and an expert with that expert's weights.

Who has an expert in common reads its weights together, straight from the tensor in which all are stacked. Few pairs
of an expert meet weights in registers, many are tiles of a product of matrices, very many are those of warpgroups,
and on CUDA cores it is a loop. Weights of few bits have a kernel of their own.
"""

from typing import Literal, NamedTuple

import torch
from torch.nn import functional

from pagedchat.jit.driver import gpu
from pagedchat.jit.launch import Kernel, f32, get_kernel, i32
from pagedchat.jit.variant import Constant
from pagedchat.ops.common.checks import check_dtype, check_same_type, check_shape
from pagedchat.ops.common.launch import address, can_overlap, ceil_div, element_name, on_cuda, stream_of
from pagedchat.ops.common.rows import row_by_row
from pagedchat.ops.experts.expert_plan import (
    TILE_WEIGHTS,
    WARPGROUP_WEIGHTS,
    ExpertPlan,
    WarpgroupsPlan,
    plan_registers,
    plan_tiles,
)
from pagedchat.ops.experts.expert_weight import ExpertWeight, Tile
from pagedchat.ops.experts.few_bits_tiles import objection_to_experts, plan_tiles_of
from pagedchat.ops.experts.gate import SILU, Gate
from pagedchat.ops.experts.group_pairs import Groups
from pagedchat.ops.experts.stacked_weight import StackedWeight
from pagedchat.ops.products.invariant_linear import invariant_linear
from pagedchat.ops.products.small_batch_plan import TILE_ROWS
from pagedchat.ops.quantized.weight import check_weight

NAME, TILED, LOOPED, BY_WARPGROUPS = "expert_linear", "expert_tiles", "expert_simt", "expert_warpgroups"
OF_FEW_BITS = "expert_few_bits"
_LOOP_WARPS = 8
After = Literal["all", "groups", "rows"]
_Constants = dict[str, Constant]


def expert_linear(
    rows: torch.Tensor,
    weight: ExpertWeight,
    groups: Groups,
    plan: ExpertPlan,
    *,
    paired: bool,
    bias: torch.Tensor | None = None,
    gate: Gate = SILU,
    after: After = "all",
) -> torch.Tensor:
    """`weight[expert of pair] @ rows[pair // pairs_per_row] + bias[expert of pair]`, for all pairs.

    Args:
        rows: `[num_rows, in_features]`; as many pairs as there are for each, which is `pairs_per_row`.
        weight: `[num_experts, out_features, in_features]`; with `paired` `2 * out_features`, gates first. On a GPU
            one tensor, or few bits that are stacked; others are torch's.
        groups: the pairs by expert.
        plan: that they were grouped by.
        paired: of each gate and its value the result has what `gate` makes of them.
        bias: `[num_experts, rows of a weight]`, contiguous; None adds nothing.
        gate: for paired rows.
        after: the kernel before has ended when the launch begins, whatever it makes; or it need not have: it makes
            `groups`; or `rows`, in a launch of this op behind the one that makes `groups`.

    Returns:
        `[num_pairs, out_features]`. All tensors are contiguous, and of one type but for `groups`.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    num_pairs = len(groups.order)
    check_shape("rows", rows, None, None)
    check_shape("weight", weight, None, None, rows.shape[1])
    if isinstance(weight, torch.Tensor):
        check_same_type("weight", weight, rows)
    elif isinstance(weight, StackedWeight):
        check_weight("weight", weight.rows_of_all, rows)
    if bias is not None:
        check_shape("bias", bias, *weight.shape[:2])
        check_same_type("bias", bias, rows)
    check_dtype("groups.order", groups.order, torch.int32)
    check_shape("groups.tiles", groups.tiles, None, 4)
    if paired and weight.shape[1] % 2:
        raise ValueError("paired rows come in an even number")
    tensors = [each for each in (rows, weight, bias) if isinstance(each, torch.Tensor)]
    if not all(tensor.is_contiguous() for tensor in tensors):
        raise ValueError("rows, weight or bias is not contiguous")
    if len(rows) == 0 or num_pairs % len(rows):
        raise ValueError(f"{num_pairs} pairs do not share out {len(rows)} rows")
    if plan.way == "torch" or not on_cuda(rows):
        return _looped(rows, weight, bias, groups, gate if paired else None, plan.batch_invariant)
    launch = _launch(rows, weight, plan, _constants(rows, paired, gate))
    output = rows.new_empty(num_pairs, weight.shape[1] // (2 if paired else 1))
    addresses = (address(tensor) for tensor in (output, launch.weight, bias, rows, groups.order, groups.tiles))
    sizes = (i32(output.shape[1]), i32(num_pairs // len(rows)), i32(after == "rows"))
    bounds = (f32(gate.sharpness), f32(gate.limit or 0.0))
    launch.kernel.launch(
        (len(groups.tiles), launch.columns),  # tiles of an expert side by side, so that L2 has its weights
        launch.num_threads,
        (*addresses, *launch.sizes, *sizes, *bounds),
        stream=stream_of(rows),
        shared_bytes=launch.shared_bytes,
        overlap=after != "all" and can_overlap(rows.device),
    )
    return output


def _looped(
    rows: torch.Tensor,
    weight: ExpertWeight,
    bias: torch.Tensor | None,
    groups: Groups,
    gate: Gate | None,
    batch_invariant: bool,
) -> torch.Tensor:
    """Tile after tile; waits for the device to know which there are."""
    order = groups.order.long()
    tiles = [Tile(expert, first, count) for expert, first, count, _ in groups.tiles.tolist() if count]
    sorted_rows = rows[order // (len(order) // len(rows))]
    if isinstance(weight, torch.Tensor):
        products = _stacked(sorted_rows, weight, bias, tiles, batch_invariant)
    else:
        products = weight.products(sorted_rows, tiles)
        for tile in tiles if bias is not None else ():
            products[tile.first : tile.first + tile.num_rows] += bias[tile.expert]  # type: ignore[index]
    if gate is not None:
        products = row_by_row(gate, products) if batch_invariant else gate(products)
    output = torch.empty_like(products)
    output[order] = products
    return output


def _stacked(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, tiles: list[Tile], batch_invariant: bool
) -> torch.Tensor:
    multiply = invariant_linear if batch_invariant else functional.linear
    products = rows.new_empty(len(rows), weight.shape[1])
    for expert, first, num_rows in tiles:
        its_rows = slice(first, first + num_rows)
        products[its_rows] = multiply(rows[its_rows], weight[expert], None if bias is None else bias[expert])
    return products


class _Launch(NamedTuple):
    kernel: Kernel
    weight: torch.Tensor
    """Which the kernel reads first."""
    columns: int
    """Thread blocks of a tile."""
    num_threads: int
    sizes: tuple[int, ...]
    """Arguments of its own, before those that all ways have."""
    shared_bytes: int = 0


def _launch(rows: torch.Tensor, weight: ExpertWeight, plan: ExpertPlan, constants: _Constants) -> _Launch:
    if isinstance(weight, torch.Tensor) and plan.way in _WAYS:
        return _WAYS[plan.way](rows, weight, plan, constants)
    if isinstance(weight, StackedWeight) and plan.way == "few bits":
        return _of_few_bits(rows, weight, plan, constants)
    raise ValueError(f"weight is not what a kernel multiplies by in the way {plan.way!r}")


def _in_registers(rows: torch.Tensor, weight: torch.Tensor, plan: ExpertPlan, constants: _Constants) -> _Launch:
    division = plan_registers(rows.shape[1], plan.tile_rows)
    constants = {**constants, "IN_FEATURES": rows.shape[1], **division.constants}
    kernel = get_kernel(NAME, rows.device.index, NAME, **constants)
    return _Launch(kernel, weight, weight.shape[1] // TILE_ROWS, division.num_threads, ())


def _in_tiles(rows: torch.Tensor, weight: torch.Tensor, plan: ExpertPlan, constants: _Constants) -> _Launch:
    division = plan_tiles(plan.tile_rows, gpu(rows.device.index).shared_bytes)
    kernel = get_kernel(TILED, rows.device.index, TILED, **constants, **division.constants)
    kernel.allow_shared(division.shared_bytes)
    columns = ceil_div(weight.shape[1], TILE_WEIGHTS)
    return _Launch(kernel, weight, columns, division.num_threads, (i32(rows.shape[1]),), division.shared_bytes)


def _on_cuda_cores(rows: torch.Tensor, weight: torch.Tensor, _plan: ExpertPlan, constants: _Constants) -> _Launch:
    kernel = get_kernel(LOOPED, rows.device.index, LOOPED, **constants)
    columns = ceil_div(weight.shape[1] // (2 if constants["GATE"] else 1), _LOOP_WARPS)
    return _Launch(kernel, weight, columns, 32 * _LOOP_WARPS, (i32(rows.shape[1]),))


def _by_warpgroups(rows: torch.Tensor, weight: torch.Tensor, _plan: ExpertPlan, constants: _Constants) -> _Launch:
    division = WarpgroupsPlan()
    kernel = get_kernel(BY_WARPGROUPS, rows.device.index, BY_WARPGROUPS, **constants, **division.constants)
    kernel.allow_shared(division.shared_bytes)
    columns = ceil_div(weight.shape[1], WARPGROUP_WEIGHTS)
    return _Launch(kernel, weight, columns, division.num_threads, (i32(rows.shape[1]),), division.shared_bytes)


def _of_few_bits(rows: torch.Tensor, weight: StackedWeight, plan: ExpertPlan, constants: _Constants) -> _Launch:
    few, form, (_, num_rows, in_features) = weight.rows_of_all, weight.form, weight.shape
    objection = objection_to_experts(form, in_features, num_rows // (2 if constants["GATE"] else 1))
    if objection:
        raise ValueError(f"there is no kernel for this weight: {objection}")
    tiles = plan_tiles_of(form.kind, plan.tile_rows, gpu(rows.device.index).shared_bytes)
    constants = {**constants, "SCALES": form.scales, **tiles.constants}
    kernel = get_kernel(OF_FEW_BITS, rows.device.index, OF_FEW_BITS, **constants)
    kernel.allow_shared(tiles.shared_bytes)
    own = (
        few.scales.data_ptr(),
        address(few.minimums),
        i32(few.scales.shape[1]),
        i32((1 << 32) // few.group_size + 1),
        i32(in_features),
    )
    columns = ceil_div(num_rows, tiles.weight_rows)
    return _Launch(kernel, few.digits, columns, tiles.num_threads, own, tiles.shared_bytes)


_WAYS = {
    "registers": _in_registers, "tiles": _in_tiles, "cuda cores": _on_cuda_cores, "warpgroups": _by_warpgroups
}  # fmt: skip


def _constants(rows: torch.Tensor, paired: bool, gate: Gate) -> _Constants:
    kind = 0 if not paired else 1 if gate.limit is None else 2
    return {"ELEMENT": element_name(rows.dtype), "GATE": kind}

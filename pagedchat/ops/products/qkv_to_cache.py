"""From a layer's input to its queries and its place in the cache, for the one token of a few sequences each.

Norm, one product for queries, keys and values, rotation by position (Su et al. 2021, arXiv 2104.09864), and the
write into the paged cache, in one launch.
"""

from typing import NamedTuple

import torch

from pagedchat.jit.driver import gpu
from pagedchat.jit.launch import f32, i32
from pagedchat.jit.variant import Constant
from pagedchat.ops.cache.heads_to_cache import check_rotations, heads_to_cache
from pagedchat.ops.cache.layout import CacheSizes, check_paged_cache
from pagedchat.ops.common.checks import check_dtype, check_same_type, check_shape
from pagedchat.ops.common.launch import address, on_cuda
from pagedchat.ops.common.norm import Norm, check_norm
from pagedchat.ops.common.side_by_side import share_of_second
from pagedchat.ops.products.add_norm import add_norm
from pagedchat.ops.products.few_rows_plan import FewRowsPlan
from pagedchat.ops.products.small_batch_launch import ProductLaunch, digits_of, plan_few, product_launch
from pagedchat.ops.products.small_batch_linear import has_kernels_for
from pagedchat.ops.products.streamed_plan import UNIT, StreamPlan
from pagedchat.ops.quantized.multiply import multiply
from pagedchat.ops.quantized.weight import Weight, check_weight, form_of

NAME = "qkv_to_cache"


def qkv_to_cache(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    input_rows: torch.Tensor,
    weight: Weight,
    block_tables: torch.Tensor,
    positions: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    values: Weight | None = None,
    values_bias: torch.Tensor | None = None,
    norm: Norm | None = None,
    rotations: torch.Tensor | None = None,
    overlap: bool = False,
) -> None:
    """Write the queries, and the keys and values into their slots. What the kernel cannot do, torch does.

    Args:
        query: `[num_tokens, num_heads, head_size]`, written.
        key_cache: `[num_blocks, num_kv_heads, head_size / x, block_size, x]`, written.
        value_cache: `[num_blocks, num_kv_heads, head_size, block_size]`, written.
        input_rows: `[num_tokens, in_features]`.
        weight: `[(num_heads + 2 * num_kv_heads) * head_size, in_features]`, of few bits or of the rows' type: query
            heads, key heads, value heads.
        block_tables: `[num_tokens, max_blocks_per_seq]`, int32.
        positions: `[num_tokens]`, int32; below 0 the token is padding: nothing of it is written but its query.
        bias: one number for each row of `weight`.
        values: `[num_kv_heads * head_size, in_features]`: the value heads, where they have another form; `weight`
            has the others then, and each has a launch.
        values_bias: one number for each row of `values`.
        norm: of the input rows.
        rotations: `[max_positions, turned / 2, 2]`, float32: cosine and sine of every position's angles; the first
            `turned` elements of a head are turned, at most all.
        overlap: as in `small_batch_linear`; positions and block tables are read before the wait.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    sizes = check_paged_cache(key_cache, value_cache)
    parts = [_Part(weight, bias, 0)]
    if values is not None:
        parts.append(_Part(values, values_bias, query.shape[1] + sizes.num_kv_heads))
    _check(query, key_cache, input_rows, parts, block_tables, positions, norm, rotations, sizes)
    places = _Places(query, key_cache, value_cache, block_tables, positions, rotations, sizes)
    launches = _launches(input_rows, parts, norm, places)
    if launches is None:
        _by_library(input_rows, parts, norm, places, overlap)
        return
    normed = None
    for part, plan, launch in launches:
        if norm is None or not plan.norm_apart:
            _launch(launch, part, places, input_rows, norm, overlap)
            continue
        normed = add_norm(input_rows, None, norm, overlap=overlap) if normed is None else normed
        _launch(launch, part, places, normed, None, overlap)


class _Part(NamedTuple):
    """A product: of all heads, or of some that follow each other."""

    weight: Weight
    bias: torch.Tensor | None
    first_head: int


class _Places(NamedTuple):
    """Where heads go, and how they are turned on their way."""

    query: torch.Tensor
    key_cache: torch.Tensor
    value_cache: torch.Tensor
    block_tables: torch.Tensor
    positions: torch.Tensor
    rotations: torch.Tensor | None
    sizes: CacheSizes


def _launches(
    rows: torch.Tensor, parts: list[_Part], norm: Norm | None, places: _Places
) -> list[tuple[_Part, FewRowsPlan, ProductLaunch]] | None:
    """One of each part; None where there is none of one."""
    rotations, sizes = places.rotations, places.sizes
    if not _multiplies(rows, rotations, sizes):
        return None
    constants: dict[str, Constant] = {
        "HEAD_SIZE": sizes.head_size,
        "BLOCK_SIZE": sizes.block_size,
        "ROTARY": int(rotations is not None),
    }
    if rotations is not None and 2 * rotations.shape[1] < sizes.head_size:
        constants["TURNED"] = 2 * rotations.shape[1]
    plans = [plan_few(rows, part.weight, norm) for part in parts]
    beside = _side_by_side(rows, parts, plans)
    found = []
    for part, plan, (most_blocks, own_constants) in zip(parts, plans, beside, strict=True):
        own_norm = None if plan.norm_apart else norm
        launch = product_launch(NAME, plan, rows, part.weight, own_norm, most_blocks, **constants, **own_constants)
        if launch is None:
            return None
        found.append((part, plan, launch))
    return found


def _side_by_side(
    rows: torch.Tensor, parts: list[_Part], plans: list[FewRowsPlan]
) -> list[tuple[int | None, dict[str, Constant]]]:
    """Of each part, how many thread blocks it may have, and how it stands to the other, if they run at once."""
    alike = len({plan.norm_apart for plan in plans}) == 1  # else a norm would be between them
    if len(parts) != 2 or not alike or not all(isinstance(plan.plan, StreamPlan) for plan in plans):
        return [(None, {}) for _ in parts]
    in_all = gpu(rows.device.index).num_multiprocessors
    first, second = ((len(part.weight) // UNIT, form_of(part.weight).bits) for part in parts)
    of_second = share_of_second(first, second, in_all)
    return [(in_all - of_second, {"BESIDE": 1}), (of_second, {"BESIDE": 2})]


def _by_library(rows: torch.Tensor, parts: list[_Part], norm: Norm | None, places: _Places, overlap: bool) -> None:
    rows = rows if norm is None else add_norm(rows, None, norm, overlap=overlap)
    products = [multiply(rows, part.weight, part.bias) for part in parts]
    heads = (products[0] if len(products) == 1 else torch.cat(products, dim=-1)).view(
        len(rows), -1, places.sizes.head_size
    )
    caches, tables = (places.key_cache, places.value_cache), (places.block_tables, places.positions)
    heads_to_cache(heads, *caches, *tables, rotations=places.rotations, overlap=overlap)
    places.query.copy_(heads[:, : places.query.shape[1]])


def _multiplies(rows: torch.Tensor, rotations: torch.Tensor | None, sizes: CacheSizes) -> bool:
    """Whether the kernels have something for such a GPU and such heads."""
    turns = rotations is None or (rotations.shape[1] % 8 == 0 and sizes.head_size % 16 == 0)
    return turns and on_cuda(rows) and has_kernels_for(rows)


def _check(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    rows: torch.Tensor,
    parts: list[_Part],
    block_tables: torch.Tensor,
    positions: torch.Tensor,
    norm: Norm | None,
    rotations: torch.Tensor | None,
    sizes: CacheSizes,
) -> None:
    check_shape("input_rows", rows, None, None)
    check_shape("query", query, rows.shape[0], None, sizes.head_size)
    num_heads = query.shape[1] + 2 * sizes.num_kv_heads
    stops = [*(part.first_head for part in parts[1:]), num_heads]
    for names, part, stop in zip((("weight", "bias"), ("values", "values_bias")), parts, stops, strict=False):
        _check_part(names, part, rows, (stop - part.first_head) * sizes.head_size)
    check_shape("block_tables", block_tables, rows.shape[0], None)
    check_shape("positions", positions, rows.shape[0])
    for name, tensor in (("query", query), ("key_cache", key_cache)):
        check_same_type(name, tensor, rows)
    for name, tensor in (("block_tables", block_tables), ("positions", positions)):
        check_dtype(name, tensor, torch.int32)
    if rotations is not None:
        check_rotations(rotations, sizes.head_size)
    if norm is not None:
        check_norm(norm, rows)
    for name, tensor in (
        ("query", query),
        ("input_rows", rows),
        ("block_tables", block_tables),
    ):
        if not tensor.is_contiguous():
            raise ValueError(f"{name} is not contiguous")


def _check_part(names: tuple[str, str], part: _Part, rows: torch.Tensor, num_rows: int) -> None:
    of_weight, of_bias = names
    check_shape(of_weight, part.weight, num_rows, rows.shape[1])
    check_weight(of_weight, part.weight, rows)
    if part.bias is not None:
        check_shape(of_bias, part.bias, num_rows)
        check_same_type(of_bias, part.bias, rows)


def _launch(
    launch: ProductLaunch, part: _Part, places: _Places, rows: torch.Tensor, norm: Norm | None, overlap: bool
) -> None:
    sizes = places.sizes
    args = (
        places.query.data_ptr(),
        places.key_cache.data_ptr(),
        places.value_cache.data_ptr(),
        digits_of(part.weight),
        address(part.bias),
        rows.data_ptr(),
        address(norm.weight if norm else None),
        address(norm.bias if norm else None),
        places.block_tables.data_ptr(),
        places.positions.data_ptr(),
        address(places.rotations),
        i32(rows.shape[0]),
        i32(places.query.shape[1]),
        i32(sizes.num_kv_heads),
        i32(part.first_head),
        i32(len(part.weight) // sizes.head_size),
        i32(places.block_tables.shape[1]),
        places.key_cache.stride(0),
        places.value_cache.stride(0),
        f32(norm.eps if norm else 0.0),
    )
    launch.run(args, rows, overlap)

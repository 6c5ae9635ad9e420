"""From a layer's input to its queries and its place in the cache, for the one token of a few sequences each.

Norm, one product for queries, keys and values, rotation by position (Su et al. 2021, arXiv 2104.09864), and the
write into the paged cache, in one launch.
"""

import torch

from pagedchat.jit.launch import f32, i32
from pagedchat.jit.variant import Constant
from pagedchat.ops.cache.heads_to_cache import check_rotations, heads_to_cache
from pagedchat.ops.cache.layout import CacheSizes, check_paged_cache
from pagedchat.ops.common.checks import check_dtype, check_same_type, check_shape
from pagedchat.ops.common.launch import address, on_cuda
from pagedchat.ops.common.norm import Norm, check_norm
from pagedchat.ops.products.add_norm import add_norm
from pagedchat.ops.products.small_batch_launch import ProductLaunch, digits_of, plan_few, product_launch
from pagedchat.ops.products.small_batch_linear import has_kernels_for
from pagedchat.ops.quantized.multiply import multiply
from pagedchat.ops.quantized.weight import Weight, check_weight

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
        norm: of the input rows.
        rotations: `[max_positions, turned / 2, 2]`, float32: cosine and sine of every position's angles; the first
            `turned` elements of a head are turned, at most all.
        overlap: as in `small_batch_linear`; positions and block tables are read before the wait.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    sizes = check_paged_cache(key_cache, value_cache)
    _check(query, key_cache, input_rows, weight, block_tables, positions, bias, norm, rotations, sizes)
    rows, launch = input_rows, None
    if _multiplies(input_rows, rotations, sizes):
        constants: dict[str, Constant] = {
            "HEAD_SIZE": sizes.head_size,
            "BLOCK_SIZE": sizes.block_size,
            "ROTARY": int(rotations is not None),
        }
        if rotations is not None and 2 * rotations.shape[1] < sizes.head_size:
            constants["TURNED"] = 2 * rotations.shape[1]
        plan = plan_few(input_rows, weight, norm)
        if plan.norm_apart and norm is not None:
            rows, norm = add_norm(input_rows, None, norm, overlap=overlap), None
        launch = product_launch(NAME, plan, rows, weight, norm, **constants)
    if launch is None:
        rows = rows if norm is None else add_norm(rows, None, norm, overlap=overlap)
        heads = multiply(rows, weight, bias).view(len(rows), -1, sizes.head_size)
        heads_to_cache(heads, key_cache, value_cache, block_tables, positions, rotations=rotations, overlap=overlap)
        query.copy_(heads[:, : query.shape[1]])
    else:
        caches = (key_cache, value_cache)
        _launch(launch, query, caches, rows, weight, block_tables, positions, bias, norm, rotations, sizes, overlap)


def _multiplies(rows: torch.Tensor, rotations: torch.Tensor | None, sizes: CacheSizes) -> bool:
    """Whether the kernels have something for such a GPU and such heads."""
    turns = rotations is None or (rotations.shape[1] % 8 == 0 and sizes.head_size % 16 == 0)
    return turns and on_cuda(rows) and has_kernels_for(rows)


def _check(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    rows: torch.Tensor,
    weight: Weight,
    block_tables: torch.Tensor,
    positions: torch.Tensor,
    bias: torch.Tensor | None,
    norm: Norm | None,
    rotations: torch.Tensor | None,
    sizes: CacheSizes,
) -> None:
    check_shape("input_rows", rows, None, None)
    check_shape("query", query, rows.shape[0], None, sizes.head_size)
    num_rows = (query.shape[1] + 2 * sizes.num_kv_heads) * sizes.head_size
    check_shape("weight", weight, num_rows, rows.shape[1])
    check_shape("block_tables", block_tables, rows.shape[0], None)
    check_shape("positions", positions, rows.shape[0])
    check_weight("weight", weight, rows)
    for name, tensor in (("query", query), ("key_cache", key_cache)):
        check_same_type(name, tensor, rows)
    for name, tensor in (("block_tables", block_tables), ("positions", positions)):
        check_dtype(name, tensor, torch.int32)
    if bias is not None:
        check_shape("bias", bias, num_rows)
        check_same_type("bias", bias, rows)
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


def _launch(
    launch: ProductLaunch,
    query: torch.Tensor,
    caches: tuple[torch.Tensor, torch.Tensor],
    rows: torch.Tensor,
    weight: Weight,
    block_tables: torch.Tensor,
    positions: torch.Tensor,
    bias: torch.Tensor | None,
    norm: Norm | None,
    rotations: torch.Tensor | None,
    sizes: CacheSizes,
    overlap: bool,
) -> None:
    args = (
        query.data_ptr(),
        caches[0].data_ptr(),
        caches[1].data_ptr(),
        digits_of(weight),
        address(bias),
        rows.data_ptr(),
        address(norm.weight if norm else None),
        address(norm.bias if norm else None),
        block_tables.data_ptr(),
        positions.data_ptr(),
        address(rotations),
        i32(rows.shape[0]),
        i32(query.shape[1]),
        i32(sizes.num_kv_heads),
        i32(block_tables.shape[1]),
        caches[0].stride(0),
        caches[1].stride(0),
        f32(norm.eps if norm else 0.0),
    )
    launch.run(args, rows, overlap)

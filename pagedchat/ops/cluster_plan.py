"""How a product over some dozens of tokens is divided among thread blocks and warps. Arithmetic only."""

from functools import cache

STEP = 32
"""Inner elements that the lanes of a row hold at a time, as in kernels/cluster_linear.cu."""
TILE_ROWS = 64
"""Rows of the weight that a thread block has."""
_CLUSTERS = (1, 2, 3, 4, 6, 8)
"""Thread blocks that may share the inner dimension."""
_PARTS = (2, 3, 1)
"""Warps that may share a thread block's part of it, the best first."""
_MOST_TILES = 8
"""Of 8 tokens, in a thread block."""
_SLICE = 512
"""Inner elements of a thread block, from which on the inner dimension is not divided further."""


def token_tiles(num_tokens: int) -> int:
    """Tiles of 8 tokens in a thread block."""
    return min(_MOST_TILES, -(-num_tokens // 8))


@cache
def plan_cluster(in_features: int, num_tokens: int, shared_limit: int) -> int | None:
    """Thread blocks that share the inner dimension.

    On an H200 small clusters are better than many thread blocks: with 32 tokens and 768 inner elements pairs are
    quickest, even where there are 24 thread blocks in all.

    Args:
        in_features: the inner dimension.
        num_tokens: of the launch.
        shared_limit: bytes of shared memory that a thread block can have.

    Returns:
        None where the inner dimension is not whole steps, or too much of it for shared memory.
    """
    tiles = token_tiles(num_tokens)
    possible = [
        cluster
        for cluster in _CLUSTERS
        if in_features % (cluster * STEP) == 0 and shared_bytes(in_features, cluster, tiles) <= shared_limit
    ]
    short = [cluster for cluster in possible if in_features // cluster <= _SLICE]
    return next(iter(short or possible[-1:]), None)


def num_parts(in_features: int, cluster: int) -> int:
    """Warps that share the inner elements of a thread block: one alone would wait for each of its products."""
    steps = in_features // cluster // STEP
    return next(parts for parts in _PARTS if steps % parts == 0)


def shared_bytes(in_features: int, cluster: int, tiles: int) -> int:
    """Size of `Shared` in kernels/cluster_linear.cu."""
    steps = in_features // cluster // STEP
    token_stride = STEP * (steps + (steps % 2 == 0))
    return 8 * tiles * (2 * token_stride + 4 * num_parts(in_features, cluster) * (TILE_ROWS + 4))

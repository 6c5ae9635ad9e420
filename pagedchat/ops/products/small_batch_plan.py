"""How a product over a few tokens is cut into warps, and which products the kernels can do. Arithmetic only."""

from dataclasses import dataclass
from functools import cache

from pagedchat.jit.kernel_file import Constants

MAX_TOKENS = 32
"""Of a launch; from there on a matrix product of cuBLAS is as fast."""
STEP = 32
"""Inner elements that the lanes of a row hold at a time, as in kernels/products/small_batch_product.cuh."""
PIECE = 8
"""Elements of 16 bytes."""
TILE_ROWS = 16
"""Rows of the result that a thread block makes."""
_AHEAD = 8
"""Steps whose weights are in registers at a time; a normed input stays there too and has no more."""
_FEW, _MOST_WARPS = 4, 19
"""Warps, below which a thread block has too little under way, and up to which a long row is shared out."""
_MOST_STEPS = 40
"""Of a warp; a row of which each would have more is left to others."""
_STATIC_BYTES = 47 << 10
"""Shared memory of a thread block, less what is used besides sums and norms."""
_MOST_NORMED = 4096
"""Inner elements times tiles of tokens, above which a normed input does not stay in registers."""


@dataclass(frozen=True, slots=True)
class ProductPlan:
    """Constants of a variant."""

    num_warps: int
    token_tiles: int
    """Of 8 tokens."""

    @property
    def num_threads(self) -> int:
        """Of a thread block."""
        return 32 * self.num_warps

    @property
    def constants(self) -> Constants:
        """For the compiler, besides what the product itself is."""
        return {"NUM_WARPS": self.num_warps, "TOKEN_TILES": self.token_tiles}


@cache
def plan_product(in_features: int, num_tokens: int, normed: bool) -> ProductPlan | None:
    """Warps that share the inner dimension, each with whole steps; None where the kernels cannot do it.

    On an H200, for 768 inner elements, 4 warps are best behind a norm, and 12 without one: what counts is how soon
    all weights are under way.

    Args:
        in_features: the inner dimension.
        num_tokens: of the launch.
        normed: whether the input is normed on its way in.
    """
    tiles = max(1, -(-num_tokens // PIECE))
    if in_features % STEP or not 1 <= num_tokens <= MAX_TOKENS:
        return None
    if normed and in_features * tiles > _MOST_NORMED:
        return None
    most = 12 if in_features < _MOST_NORMED else _MOST_WARPS
    candidates = [warps for warps in range(1, most + 1) if _fits(in_features, tiles, warps, normed)]
    if not candidates:
        return None
    if normed:
        return ProductPlan(next((warps for warps in candidates if warps >= _FEW), candidates[-1]), tiles)
    even = [warps for warps in candidates if _rounds(in_features // (warps * STEP)) and warps >= _FEW]
    return ProductPlan((even or candidates)[-1], tiles)


@cache
def plan_head(in_features: int, num_tokens: int, normed: bool, shared_limit: int) -> ProductPlan | None:
    """The same for the product with the vocabulary, where every warp takes whole rows.

    Args:
        in_features: the inner dimension.
        num_tokens: of the launch.
        normed: whether the input is normed on its way in.
        shared_limit: bytes of shared memory that a thread block can have.
    """
    tiles = max(1, -(-num_tokens // PIECE))
    steps = in_features // STEP
    if in_features % STEP or not 1 <= num_tokens <= MAX_TOKENS or steps % (2 * _round_steps(steps)):
        return None
    if normed and in_features * tiles > _MOST_NORMED:
        return None
    for num_warps in (6, 8, 4, 5, 7, 3, 9, 10, 12):
        plan = ProductPlan(num_warps, tiles)
        whole = steps % num_warps == 0 and (steps // num_warps <= _AHEAD if normed else _rounds(steps // num_warps))
        if whole and head_shared_bytes(in_features, plan, normed) <= shared_limit:
            return plan
    return None


def head_shared_bytes(in_features: int, plan: ProductPlan, normed: bool) -> int:
    """Size of `HeadShared` in kernels/products/next_token.cu, at least."""
    tokens = PIECE * plan.token_tiles
    size = _product_bytes(in_features, plan.token_tiles, plan.num_warps, normed)
    return -(-(size + 2 * in_features * tokens + 8 * tokens + 16) // 16) * 16


def _fits(in_features: int, tiles: int, num_warps: int, normed: bool) -> bool:
    steps, rest = divmod(in_features, num_warps * STEP)
    return (
        not rest
        and steps <= (_AHEAD if normed else _MOST_STEPS)
        and _product_bytes(in_features, tiles, num_warps, normed) <= _STATIC_BYTES
    )


def _rounds(steps: int) -> bool:
    """Whether a warp's steps are whole rounds of weights."""
    return steps % min(steps, _AHEAD) == 0


def _product_bytes(in_features: int, tiles: int, num_warps: int, normed: bool) -> int:
    """Size of `ProductShared`."""
    tokens = PIECE * tiles
    return 80 * num_warps * tokens + (8 * num_warps * tokens + 4 * in_features if normed else 0)


def _round_steps(steps: int) -> int:
    """`ROUND` of kernels/products/next_token.cu."""
    if steps % 8 == 0 and steps >= 32:
        return 8
    return 6 if steps % 6 == 0 else 4

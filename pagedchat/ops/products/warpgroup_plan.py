"""How a product over up to 256 tokens is divided among thread blocks. Arithmetic only."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from pagedchat.jit.kernel_file import Constants

MAX_TOKENS = 256
"""Of a launch; from there on a library is better."""
CHUNK = 64
"""Inner elements that are fetched and multiplied at a time, as in kernels/products/warpgroup_product.cuh."""
_SIDE = 64
"""One side of a warpgroup product: tokens, or rows of the weight."""
_TOKENS, _SUMS = (16, 32, 48, 96, 128), (16, 32, 48, 64, 96, 128)
"""The other side."""
_CLUSTERS = (1, 2, 4)
"""Thread blocks that may share the inner dimension; 8 find room on too few groups of multiprocessors."""
WARPGROUPS = 2
"""That multiply, of a thread block."""
_GROUP_THREADS = 128
_FACTOR_BYTES = 4
"""Of a token, for a norm that is due."""
_FEWEST_STAGES = 5
"""So that some chunks are fetched while each warpgroup has one to multiply and one that it is done with."""

# Of an H200. What memory, caches and clusters do was measured one by one; the others are those with which the
# divisions chosen for three widths and 16 to 256 tokens came closest to the quickest of all that were tried. Other
# GPUs with warpgroups differ in how many multiprocessors they have, which is asked, and little in what one does.
_L2_BYTES, _OWN_BYTES, _SENT_BYTES = 5.5e6, 112e3, 25e3
"""A microsecond: from the L2 cache to all multiprocessors, to one of them, and between those of a cluster."""
_CYCLES = 585
"""Of products, a microsecond: a third of what the clock says."""
_MEETING = 1.0
"""Microseconds that a cluster costs whatever its size."""
_STARTING = 1.6
"""Microseconds that it takes a thread block on every multiprocessor to start, fewer accordingly."""
_BESIDE = 96 / 132
"""Of the multiprocessors: so many of them taken leave enough room for the next product to fetch its weights."""
_LATE_BYTES = 30e3
"""A microsecond of weights that are late because every multiprocessor was taken."""


@dataclass(frozen=True, slots=True)
class WarpgroupPlan:
    """Constants of a variant."""

    tokens: int
    """Of a thread block."""
    columns: int
    """Of the output, of a thread block."""
    cluster: int
    """Thread blocks that share the inner dimension."""
    warpgroups: int
    """That multiply; one more fetches."""
    stages: int
    """Chunks of tokens in shared memory at a time."""

    @property
    def constants(self) -> Constants:
        """For the compiler, besides what the product itself is."""
        return {
            "CLUSTER": self.cluster,
            "WARPGROUPS": self.warpgroups,
            "STAGES": self.stages,
            "TOKENS": self.tokens,
            "COLUMNS": self.columns,
        }

    def num_sums(self, out_features: int) -> int | None:
        """Sums of squares that a row of the output has in a norm ahead; None: the kernel has none, since a row's
        columns are of more than one warp."""
        return None if self.columns & (self.columns - 1) else out_features // self.columns

    @property
    def num_threads(self) -> int:
        """Of a thread block."""
        return _GROUP_THREADS * (self.warpgroups + 1)


@cache
def plan_warpgroups(
    in_features: int,
    out_features: int,
    num_tokens: int,
    paired: bool,
    *,
    num_multiprocessors: int,
    shared_limit: int,
) -> WarpgroupPlan | None:
    """The division with which a product takes the least time by `_microseconds`.

    Args:
        in_features: the inner dimension.
        out_features: columns of the output.
        num_tokens: of the launch.
        paired: whether the weight has a gate and a value for each column.
        num_multiprocessors: of the GPU.
        shared_limit: bytes of shared memory that a thread block can have.

    Returns:
        None where the sizes are no whole tiles, or too large for one thread block a multiprocessor.
    """
    if not 1 <= num_tokens <= MAX_TOKENS:
        return None
    times: dict[WarpgroupPlan, float] = {}
    for tokens, sums, cluster in _divisions(in_features, paired):
        columns = sums // (1 + paired)
        stages = num_stages(in_features, tokens, sums, cluster, shared_limit)
        num_blocks = cluster * (out_features // columns) * -(-num_tokens // tokens)
        if stages is not None and out_features % columns == 0 and num_blocks <= num_multiprocessors:
            plan = WarpgroupPlan(tokens, columns, cluster, WARPGROUPS, stages)
            times[plan] = _microseconds(
                in_features // cluster, tokens, sums, cluster, num_blocks, num_multiprocessors
            )
    return min(times, key=times.__getitem__, default=None)


def shared_bytes(in_features: int, plan: WarpgroupPlan, paired: bool) -> int:
    """Size of `Shared` in kernels/products/warpgroup_linear.cu, at least."""
    return _bytes(in_features, plan.tokens, plan.columns * (1 + paired), plan.cluster, plan.stages)


def num_stages(in_features: int, tokens: int, sums: int, cluster: int, shared_limit: int) -> int | None:
    """As many as a thread block has chunks, or as fit into its shared memory; None if too few do.

    Args:
        in_features: the inner dimension.
        tokens: of a thread block.
        sums: of each of them: rows of the weight.
        cluster: thread blocks that share the inner dimension.
        shared_limit: bytes that a thread block can have.
    """
    chunks = in_features // (CHUNK * cluster)
    fitting = [n for n in range(1, chunks + 1) if _bytes(in_features, tokens, sums, cluster, n) <= shared_limit]
    return fitting[-1] if fitting and fitting[-1] >= min(chunks, _FEWEST_STAGES) else None


def _divisions(in_features: int, paired: bool) -> Iterator[tuple[int, int, int]]:
    """Tokens, sums of each, cluster."""
    tiles = [(_SIDE, sums * (1 + paired)) for sums in _SUMS] + [(tokens, _SIDE) for tokens in _TOKENS]
    for cluster in _CLUSTERS:
        if in_features % (CHUNK * cluster) == 0:
            yield from ((tokens, sums, cluster) for tokens, sums in tiles)


def _microseconds(
    inner: int, tokens: int, sums: int, cluster: int, num_blocks: int, num_multiprocessors: int
) -> float:
    """What is left when the tokens are there: to fetch them, to multiply beside that, to exchange sums.

    Products read both sides from shared memory, 128 bytes a cycle.
    """
    own = 2 * tokens * inner
    fetch = max(own / _OWN_BYTES, num_blocks * own / _L2_BYTES)
    multiply = inner / 16 * max((tokens + sums) / 4, tokens * sums / 128) / _CYCLES
    sent = 4 * tokens * sums * (cluster - 1) / cluster
    meet = _MEETING + sent / _SENT_BYTES if cluster > 1 else 0.0
    roomy = _BESIDE * num_multiprocessors
    crowded = max(0, num_blocks - roomy) / (num_multiprocessors - roomy)
    late = 2 * sums * inner / _LATE_BYTES * crowded
    return max(fetch, multiply) + meet + late + _STARTING * num_blocks / num_multiprocessors


def _bytes(in_features: int, tokens: int, sums: int, cluster: int, stages: int) -> int:
    """Tiles or the sums that take their place, sums of the cluster, barriers, factors of rows."""
    chunks = in_features // (CHUNK * cluster)
    of_sums = 4 * tokens * (sums + 8)
    tiles = 2 * CHUNK * (chunks * sums + stages * tokens)
    of_cluster = of_sums + 16 if cluster > 1 else 0
    return max(tiles, WARPGROUPS * of_sums) + of_cluster + 16 * stages + _FACTOR_BYTES * tokens

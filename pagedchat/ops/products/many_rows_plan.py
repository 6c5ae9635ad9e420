"""Which kernel makes a product of a dozen rows and more, one product at a time. Arithmetic only.

The ops launch what this says, and `pagedchat doctor` says it of models that are not loaded.
"""

from pagedchat.jit.driver import Gpu
from pagedchat.ops.clusters.cluster_plan import MAX_TOKENS as MOST_OF_CLUSTERS
from pagedchat.ops.clusters.cluster_plan import ClusterPlan, plan_clusters
from pagedchat.ops.products.stream_k_plan import MAX_TOKENS, StreamKPlan, plan_stream_k
from pagedchat.ops.products.warpgroup_plan import WarpgroupPlan, plan_warpgroups
from pagedchat.ops.products.wide_plan import WidePlan, plan_wide
from pagedchat.ops.quantized.weight_form import WHOLE, WeightForm

ManyRowsPlan = WarpgroupPlan | ClusterPlan | StreamKPlan | WidePlan

_WARPGROUPS = (9, 0)
"""Compute capability of the only GPUs that multiply by warpgroups."""
_LEAST_STREAMED_BYTES = 20 << 20
"""Of a weight that streams although it would fit into the shared memory of all multiprocessors: a smaller one is
there before the tokens are."""
_MORE_TOKENS, _LARGE_RESIDENT_BYTES, _SLICES = 33, 16 << 20, 2
"""From so many tokens on, a smaller one of so many bytes streams as well: by clusters of so many thread blocks a
tile, each with a multiprocessor of its own."""
_FEW_TOKENS, _LEAST_BYTES_FOR_MORE = 48, 64 << 20
"""Up to so many tokens a vocabulary that streams is quicker than a library; with more, one of so many bytes."""
_ROUNDS = 2
"""Launches of few bits, each with its part of the tokens, that are quicker than what there is for more."""
MOST_OF_FEW_BITS = _ROUNDS * MOST_OF_CLUSTERS
"""Tokens that they take."""
_LIBRARY_ROWS, _LARGE_BYTES = range(257, 512), 128 << 20
"""With so many rows a library makes gates and values of a weight of more bytes as quickly, or more so."""


def plan_many_rows(
    in_features: int,
    out_features: int,
    num_tokens: int,
    *,
    paired: bool,
    gpu: Gpu | None,
    form: WeightForm = WHOLE,
) -> ManyRowsPlan | None:
    """The quickest way that there is; None: a library multiplies, or of few bits `ops.quantized.multiply`.

    What was measured is in kernels/DECODE_STEPS.md.

    Args:
        in_features: the inner dimension.
        out_features: columns of the output.
        num_tokens: of the launch.
        paired: whether the weight has a gate and a value for each column.
        gpu: None is a GPU of which nothing is known.
        form: of the weight.
    """
    if gpu is None or gpu.compute_capability != _WARPGROUPS:
        return None
    sizes = in_features, out_features, num_tokens, paired
    multiprocessors, limit = gpu.num_multiprocessors, gpu.shared_bytes
    if form.few:
        of_round = in_features, out_features, min(num_tokens, MOST_OF_CLUSTERS), paired
        return plan_clusters(*of_round, multiprocessors, limit, form) if num_tokens <= MOST_OF_FEW_BITS else None
    resident = plan_warpgroups(*sizes, num_multiprocessors=multiprocessors, shared_limit=limit)
    weight_bytes = 2 * in_features * out_features * (1 + paired)
    clusters = plan_clusters(*sizes, multiprocessors, limit)
    if resident is not None and weight_bytes < _LEAST_STREAMED_BYTES:
        is_large = weight_bytes >= _LARGE_RESIDENT_BYTES and num_tokens >= _MORE_TOKENS and not paired
        return clusters if is_large and _stands_alone(clusters, out_features, multiprocessors) else resident
    if clusters is not None:
        return clusters
    if num_tokens > MAX_TOKENS and paired and resident is None:
        large = weight_bytes > _LARGE_BYTES and num_tokens in _LIBRARY_ROWS
        return None if large else plan_wide(in_features, out_features, num_tokens, multiprocessors, limit)
    streamed = plan_stream_k(*sizes, multiprocessors, limit)
    is_slow = num_tokens > _FEW_TOKENS and not paired and weight_bytes < _LEAST_BYTES_FOR_MORE
    return resident if streamed is None or is_slow else streamed


def _stands_alone(plan: ClusterPlan | None, out_features: int, num_multiprocessors: int) -> bool:
    """Whether tiles of two slices leave no multiprocessor with two thread blocks."""
    if plan is None or plan.slices != _SLICES:
        return False
    return plan.num_blocks(out_features, False) <= num_multiprocessors

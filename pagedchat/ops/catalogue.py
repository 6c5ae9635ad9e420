"""Every kernel file of `kernels/`, and which variants of them are wanted when. Gathers what the folders declare.

Loads no torch. A kernel that no folder declares fails the tests, and so does an op that asks for a variant that is
not declared: it would work all the same, but be compiled at its first launch and not before the first step.
"""

from pagedchat.jit.kernel_file import KernelFile, Use
from pagedchat.jit.variant import Constant, Variant
from pagedchat.ops.all_layers.kernels import KERNELS as ALL_LAYERS
from pagedchat.ops.attention.kernels import KERNELS as ATTENTION
from pagedchat.ops.attention.prefill_plan import PART_KEYS
from pagedchat.ops.cache.kernels import KERNELS as CACHE
from pagedchat.ops.clusters.kernels import KERNELS as CLUSTERS
from pagedchat.ops.common.choices import TURING, has_tensor_cores
from pagedchat.ops.experts.kernels import KERNELS as EXPERTS
from pagedchat.ops.products.kernels import KERNELS as PRODUCTS
from pagedchat.ops.quantized.kernels import KERNELS as QUANTIZED
from pagedchat.ops.ranks.kernels import KERNELS as RANKS
from pagedchat.ops.sampling.kernels import KERNELS as SAMPLING
from pagedchat.ops.screening.kernels import KERNELS as SCREENING
from pagedchat.ops.whole_step.kernels import KERNELS as WHOLE_STEP

CATALOGUE = (
    *CACHE,
    *ATTENTION,
    *PRODUCTS,
    *CLUSTERS,
    *EXPERTS,
    *QUANTIZED,
    *ALL_LAYERS,
    *WHOLE_STEP,
    *RANKS,
    *SAMPLING,
    *SCREENING,
)


_OVER_BYTES_ALONE = frozenset({"rows_to_bytes"})
_NOT_OVER_BYTES = frozenset({"reshape_and_cache", "decode_shared", "prefill_wgmma"})
"""Kernels of eager steps that one kind of cache has, and the other not."""


def covering_set(architecture: str) -> list[Variant]:
    """The variants that stand for all of them in tests and in `doctor --compile`."""
    return [variant for file in CATALOGUE for variant in file.covering(architecture)]


def variants_for_model(
    element: str,
    head_size: int,
    block_size: int,
    group_size: int,
    architecture: str,
    *,
    soft_cap: bool = False,
    alibi: bool = False,
    sinks: bool = False,
    batch_invariant: bool = False,
    cache_kind: int = 0,
) -> list[Variant]:
    """The variants that a model's eager steps launch, and no more; captured ones find theirs by a rehearsal.

    Args:
        element: of the cache: float16, bfloat16 or float32.
        head_size: of keys and values.
        block_size: token slots in a block.
        group_size: query heads to a KV head.
        architecture: of the GPU, like `"sm_90"`.
        soft_cap: whether scores are capped.
        alibi: whether scores get a slope over the distance.
        sinks: whether heads have a score that belongs to no key.
        batch_invariant: whether attention goes by the kernels whose rows nothing else may change.
        cache_kind: of the kernels, other than 0 for a cache of bytes.
    """
    known: dict[str, Constant] = {
        "ELEMENT": element,
        "HEAD_SIZE": head_size,
        "BLOCK_SIZE": block_size,
        "GROUP_SIZE": group_size,
        "SOFT_CAP": int(soft_cap),
        "ALIBI": int(alibi),
        "SINKS": int(sinks),
        "INPUT_IS_FRESH": 0,  # in captured steps alone
        "WRITES_NEW": 0,
        "EVEN_SPLITS": 0,
        "HANDS_OVER": 0,
        "PART_KEYS": PART_KEYS if batch_invariant else 0,
        "IN_ORDER": int(batch_invariant),
        "CACHE_KIND": cache_kind,
    }
    left_out = _NOT_OVER_BYTES if cache_kind else _OVER_BYTES_ALONE
    files = [file for file in _launched(element, head_size, architecture) if file.stem not in left_out]
    return [variant for file in files for variant in file.variants(architecture, **known)]


def variants_where_asked(element: str, architecture: str) -> list[Variant]:
    """What steps launch besides where a request asks for it; rules for tokens make logits float32."""
    asked = [file for file in CATALOGUE if file.use is Use.WHERE_ASKED]
    variants = [variant for file in asked for variant in file.variants(architecture, ELEMENT=element)]
    under_rules = [file for file in SAMPLING if file.stem == "sample" and element != "float32"]
    return variants + [each for file in under_rules for each in file.variants(architecture, ELEMENT="float32")]


def _launched(element: str, head_size: int, architecture: str) -> list[KernelFile]:
    on_tensor_cores = has_tensor_cores(element, (7, 5) if architecture in TURING else (8, 0))
    wanted = {Use.ANY_MODEL, Use.TENSOR_CORES if on_tensor_cores else Use.CUDA_CORES}
    # Heads of 256 find no room for a tile of prefill on Turing's tensor cores.
    others = {"prefill_simt"} if on_tensor_cores and head_size == 256 and architecture in TURING else set()
    return [file for file in CATALOGUE if file.use in wanted or file.stem in others]

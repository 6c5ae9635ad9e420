"""Every kernel file of `kernels/`: entry points, constants, what it cannot do. A table, and what is asked of it.

A new kernel gets a line here, or the tests fail; so they do when an op asks for a variant that is not here. Such a
variant would work all the same, but be compiled at its first launch instead of before the first step.
"""

from pagedchat.jit.kernel_file import Choices, KernelFile, Limit, Tuning
from pagedchat.jit.variant import Constant, Variant

ELEMENTS = ("float16", "bfloat16", "float32")
TENSOR_CORE_ELEMENTS = ("float16", "bfloat16")
HEAD_SIZES = (64, 80, 96, 112, 128, 256)
BLOCK_SIZES = (8, 16, 32)
GROUP_SIZES = (1, 4, 7, 8, 2, 32)
"""Some of the numbers of query heads to a KV head; a kernel takes any from 1 on."""
FLAG = (0, 1)

_CACHE: Choices = {"ELEMENT": ELEMENTS, "HEAD_SIZE": HEAD_SIZES, "BLOCK_SIZE": BLOCK_SIZES}
_SCORES: Choices = {"GROUP_SIZE": GROUP_SIZES, "SOFT_CAP": FLAG, "ALIBI": FLAG}
_CUDA_CORES: Choices = {**_CACHE, **_SCORES}
_TENSOR_CORES: Choices = {**_CACHE, "ELEMENT": TENSOR_CORE_ELEMENTS, **_SCORES}

_TURING = frozenset({"sm_75"})
_NO_BFLOAT16 = Limit("tensor cores multiply bfloat16 from sm_80 on", _TURING, where={"ELEMENT": ["bfloat16"]})
_OVERLAPPING = frozenset({"sm_90", "sm_100", "sm_103", "sm_120"})
"""Where a launch may begin before the one before it has ended (programmatic dependent launch)."""
_HOPPER_ONLY = Limit("warpgroup products (wgmma) exist on sm_90 alone", frozenset({"sm_90"}), but=True)

# As pagedchat/ops/attention/decode_plan.py chooses: warps of a thread block.
_MOST_ROWS_OF_8_WARPS = {64: 20, 80: 16, 96: 14, 112: 12, 128: 10, 256: 5}
"""Heads of a group, by head size, whose outputs fit into the static shared memory of 8 warps."""
_DECODE_TUNINGS = (
    Tuning({"NUM_WARPS": 1}, {"WHOLE_CONTEXT": [0]}),
    Tuning({"NUM_WARPS": 2}),
    Tuning({"NUM_WARPS": 4}),
    *(
        Tuning({"NUM_WARPS": 8}, {"HEAD_SIZE": [head_size], "GROUP_SIZE": range(1, most + 1)})
        for head_size, most in _MOST_ROWS_OF_8_WARPS.items()
    ),
)

# As pagedchat/ops/attention/prefill_plan.py chooses: the first tile that fits into shared memory.
_TILE = {"NUM_WARPS": 4, "STAGES": 2, "MIN_THREAD_BLOCKS": 1, "QUERY_IN_REGISTERS": 0}
_WIDE = {**_TILE, "WARP_ROWS": 32, "TILE_KEYS": 64}
_NARROW = {**_TILE, "WARP_ROWS": 16, "TILE_KEYS": 64}
_SMALL = {**_TILE, "WARP_ROWS": 16, "TILE_KEYS": 32}
_UP_TO_128 = (64, 80, 96, 112, 128)
_100_KIB = frozenset({"sm_86", "sm_89", "sm_120"})
_TOO_LITTLE = "a thread block has too little shared memory for the tile"
_PREFILL_TUNINGS = (
    Tuning(_WIDE, {"HEAD_SIZE": _UP_TO_128}),
    Tuning(_NARROW),
    Tuning(_SMALL, {"HEAD_SIZE": (112, 128, 256)}),
)
_PREFILL_LIMITS = (
    _NO_BFLOAT16,
    Limit(_TOO_LITTLE, _TURING, where={"HEAD_SIZE": [256]}),
    Limit(_TOO_LITTLE, _TURING, where={"HEAD_SIZE": [112, 128], "TILE_KEYS": [64]}),
    Limit(_TOO_LITTLE, _TURING, where={"HEAD_SIZE": [96], "WARP_ROWS": [32]}),
    Limit(_TOO_LITTLE, _100_KIB, where={"HEAD_SIZE": [256], "TILE_KEYS": [64]}),
    Limit("the larger tile fits", _TURING, but=True, where={"HEAD_SIZE": [112, 128], "TILE_KEYS": [32]}),
    Limit("the larger tile fits", _100_KIB, but=True, where={"HEAD_SIZE": [256], "TILE_KEYS": [32]}),
)

# As pagedchat/ops/attention/prefill_wgmma.py chooses: warpgroups that compute, and keys of a tile.
_TWO = {"CONSUMERS": 2, "TILE_KEYS": 128, "STAGES": 2}
_WGMMA_TUNINGS = (
    Tuning({**_TWO, "CONSUMERS": 3}, {"HEAD_SIZE": [64], "SOFT_CAP": [0], "ALIBI": [0]}),
    Tuning(_TWO, {"HEAD_SIZE": [64], "SOFT_CAP": [1]}),
    Tuning(_TWO, {"HEAD_SIZE": [64], "SOFT_CAP": [0], "ALIBI": [1]}),
    Tuning(_TWO, {"HEAD_SIZE": [80, 96, 112, 128]}),
    Tuning({**_TWO, "TILE_KEYS": 64}, {"HEAD_SIZE": [256]}),
)

# As pagedchat/ops/products/small_batch_plan.py chooses, for some widths of models: a width takes what it needs.
_PRODUCT: Choices = {"ELEMENT": TENSOR_CORE_ELEMENTS, "NORM": (0, 1, 2), "TOKEN_TILES": (1, 2, 3, 4)}
_PRODUCT_TUNINGS = (
    Tuning({"IN_FEATURES": 768, "NUM_WARPS": 4}),
    Tuning({"IN_FEATURES": 1024, "NUM_WARPS": 4}),
    Tuning({"IN_FEATURES": 3072, "NUM_WARPS": 12}),
)

# As pagedchat/ops/products/streamed_plan.py chooses.
_STREAM: Choices = {"ELEMENT": TENSOR_CORE_ELEMENTS, "NORM": (0, 1, 2), "TOKEN_TILES": (1, 2)}
_RING = {"NUM_WARPS": 8, "STAGE_FEATURES": 1024}
_STREAM_TUNINGS = (
    Tuning({**_RING, "IN_FEATURES": 8192, "STAGES": 10}, {"NORM": [0], "TOKEN_TILES": [1]}),
    Tuning({**_RING, "IN_FEATURES": 2048, "STAGES": 10}),
    Tuning({**_RING, "IN_FEATURES": 2048, "STAGES": 4}),
)
_HEAD_TUNINGS = (
    Tuning({"IN_FEATURES": 768, "NUM_WARPS": 6}),
    Tuning({"IN_FEATURES": 1024, "NUM_WARPS": 8}),
)

# As pagedchat/ops/products/warpgroup_plan.py chooses.
_WARPGROUP_TUNINGS = (
    Tuning(
        {"TOKENS": 32, "IN_FEATURES": 768, "CLUSTER": 1, "WARPGROUPS": 2, "STAGES": 12},
        {"COLUMNS": [64], "PAIRED": [0]},
    ),
    Tuning({"TOKENS": 64, "IN_FEATURES": 768, "CLUSTER": 1, "WARPGROUPS": 2, "STAGES": 10}),
    Tuning({"TOKENS": 64, "IN_FEATURES": 3072, "CLUSTER": 4, "WARPGROUPS": 2, "STAGES": 7}),
)

# As pagedchat/ops/whole_step/plan.py chooses for two models on 132 multiprocessors.
_WHOLE_STEP = {"NUM_BLOCKS": 132, "CLUSTER": 1, "HEAD_SIZE": 64, "SCREENED_TILES": 12}
_IN_CLUSTERS = {**_WHOLE_STEP, "NUM_BLOCKS": 120, "CLUSTER": 4, "SCREENED_TILES": 14}
_OPT_125M = {"HIDDEN": 768, "MIDDLE": 3072, "NUM_HEADS": 12, "GROUP_SIZE": 1, "NORM": 1, "GATED": 0, "ROTARY": 0}
_SMOLLM_135M = {"HIDDEN": 576, "MIDDLE": 1536, "NUM_HEADS": 9, "GROUP_SIZE": 3, "NORM": 2, "GATED": 1, "ROTARY": 1}
_WHOLE_STEP_TUNINGS = (
    Tuning({**_IN_CLUSTERS, **_OPT_125M, "NUM_WARPS": 12}, {"TOKENS": [1], "SPLITS": [1]}),
    Tuning({**_WHOLE_STEP, **_OPT_125M, "NUM_WARPS": 12}),
    Tuning({**_WHOLE_STEP, **_SMOLLM_135M, "NUM_WARPS": 6}),
)
_NO_BULK_COPIES = Limit("bulk copies exist from sm_90 on", _OVERLAPPING, but=True)
_NO_PRODUCERS = Limit(
    "too few thread blocks are left for the residual stream",
    frozenset(),
    but=True,
    where={"TOKENS": [2], "SPLITS": [3], "NUM_HEADS": [12]},
)
_LITTLE_SHARED = Limit("a layer's weights do not fit into shared memory", frozenset({"sm_120"}))

# As pagedchat/ops/sampling/sample.py chooses: thread blocks that share a row.
_SAMPLE_TUNINGS = (
    Tuning({"CLUSTER": 1, "NUM_THREADS": 1024}),
    Tuning({"CLUSTER": 2, "NUM_THREADS": 1024}),
    Tuning({"CLUSTER": 8, "NUM_THREADS": 512}),
)
_NO_CLUSTERS = Limit("clusters exist from sm_90 on", _OVERLAPPING, but=True, where={"CLUSTER": [2, 6, 8]})

CATALOGUE = (
    KernelFile("reshape_and_cache", ("reshape_and_cache", "reshape_and_cache_runs"), _CACHE),
    KernelFile("gather_cached_kv", ("gather_cached_kv",), _CACHE),
    KernelFile("copy_blocks", ("copy_blocks",)),
    KernelFile("swap_blocks", ("swap_blocks",)),
    KernelFile("merge_attn_states", ("merge_attn_states",), {"ELEMENT": ELEMENTS, "HEAD_SIZE": HEAD_SIZES}),
    KernelFile("decode_simt", ("decode_simt",), _CUDA_CORES, (Tuning({"NUM_WARPS": 4}),)),
    KernelFile(
        "decode_split",
        ("decode_split",),
        {**_TENSOR_CORES, "WHOLE_CONTEXT": FLAG, "INPUT_IS_FRESH": FLAG, "WRITES_NEW": FLAG},
        _DECODE_TUNINGS,
        (_NO_BFLOAT16,),
    ),
    KernelFile(
        "decode_shared",
        ("decode_shared",),
        {**_TENSOR_CORES, "INPUT_IS_FRESH": FLAG},
        (Tuning({"NUM_WARPS": 4}),),
        (_NO_BFLOAT16,),
    ),
    KernelFile(
        "prefill_mma",
        ("prefill_mma",),
        {**_TENSOR_CORES, "SPLIT_KEYS": FLAG},
        _PREFILL_TUNINGS,
        _PREFILL_LIMITS,
    ),
    KernelFile(
        "prefill_merge",
        ("prefill_merge",),
        {"ELEMENT": TENSOR_CORE_ELEMENTS, "HEAD_SIZE": HEAD_SIZES},
    ),
    KernelFile("prefill_simt", ("prefill_simt",), _CUDA_CORES),
    KernelFile("prefill_wgmma", ("prefill_wgmma",), _TENSOR_CORES, _WGMMA_TUNINGS, (_HOPPER_ONLY,)),
    KernelFile(
        "small_batch_linear",
        ("small_batch_linear",),
        {**_PRODUCT, "ACTIVATION": (0, 1, 2), "PAIRED": FLAG},
        _PRODUCT_TUNINGS,
        (_NO_BFLOAT16,),
    ),
    KernelFile(
        "qkv_to_cache",
        ("qkv_to_cache",),
        {**_PRODUCT, "HEAD_SIZE": HEAD_SIZES, "BLOCK_SIZE": BLOCK_SIZES, "ROTARY": FLAG},
        _PRODUCT_TUNINGS,
        (_NO_BFLOAT16,),
    ),
    KernelFile(
        "streamed_linear",
        ("streamed_linear",),
        {**_STREAM, "ACTIVATION": (0, 1, 2), "PAIRED": FLAG},
        _STREAM_TUNINGS,
        (_NO_BULK_COPIES,),
    ),
    KernelFile(
        "streamed_qkv",
        ("streamed_qkv",),
        {**_STREAM, "HEAD_SIZE": HEAD_SIZES, "BLOCK_SIZE": BLOCK_SIZES, "ROTARY": FLAG},
        _STREAM_TUNINGS,
        (_NO_BULK_COPIES,),
    ),
    KernelFile("streamed_vocabulary", ("streamed_vocabulary",), _STREAM, _STREAM_TUNINGS, (_NO_BULK_COPIES,)),
    KernelFile(
        "warpgroup_linear",
        ("warpgroup_linear",),
        {
            "ELEMENT": TENSOR_CORE_ELEMENTS,
            "COLUMNS": (48, 16, 96, 32, 64, 128),
            "ACTIVATION": (0, 1, 2),
            "PAIRED": FLAG,
        },
        _WARPGROUP_TUNINGS,
        (_HOPPER_ONLY,),
    ),
    KernelFile(
        "persistent_decode",
        ("persistent_decode",),
        {
            "ELEMENT": TENSOR_CORE_ELEMENTS,
            "BLOCK_SIZE": BLOCK_SIZES,
            "TOKENS": (1, 2),
            "SPLITS": (1, 3),
            "RING": (8, 6),
            "SCREENED": (1, 0),
        },
        _WHOLE_STEP_TUNINGS,
        (_NO_BULK_COPIES, _NO_PRODUCERS, _LITTLE_SHARED),
    ),
    KernelFile("next_token", ("logits_argmax",), _PRODUCT, _HEAD_TUNINGS, (_NO_BFLOAT16,)),
    KernelFile("add_norm", ("add_norm",), {"ELEMENT": ELEMENTS, "NORM": (1, 2)}),
    KernelFile("embed_tokens", ("embed_tokens",), {"ELEMENT": ELEMENTS}),
    KernelFile("heads_to_cache", ("heads_to_cache",), {**_CACHE, "ROTARY": FLAG}),
    KernelFile("silu_and_mul", ("silu_and_mul",), {"ELEMENT": ELEMENTS}),
    KernelFile(
        "decode_state", ("find_slots", "argmax_rows", "most_likely_tokens", "replace_tokens"), {"ELEMENT": ELEMENTS}
    ),
    KernelFile("sample", ("sample",), {"ELEMENT": ELEMENTS}, _SAMPLE_TUNINGS, (_NO_CLUSTERS,)),
)
_DECODE_STEPS = {
    "small_batch_linear", "qkv_to_cache", "next_token", "add_norm", "embed_tokens", "decode_state",
    "heads_to_cache", "silu_and_mul", "warpgroup_linear", "persistent_decode", "streamed_linear",
    "streamed_qkv", "streamed_vocabulary",
}  # fmt: skip
"""For whole decode steps; what a model needs of them depends on its width, so they are compiled at first use."""
_ANY_MODEL = {
    "reshape_and_cache", "gather_cached_kv", "copy_blocks", "swap_blocks", "merge_attn_states", "sample"
}  # fmt: skip
_ON_CUDA_CORES = {"decode_simt", "prefill_simt"}


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
) -> list[Variant]:
    """The variants that a model's steps launch.

    Args:
        element: of the cache: float16, bfloat16 or float32.
        head_size: of keys and values.
        block_size: token slots in a block.
        group_size: query heads to a KV head.
        architecture: of the GPU, like `"sm_90"`.
        soft_cap: whether scores are capped.
        alibi: whether scores get a slope over the distance.
    """
    stems = _stems(element, head_size, architecture)
    known: dict[str, Constant] = {
        "ELEMENT": element,
        "HEAD_SIZE": head_size,
        "BLOCK_SIZE": block_size,
        "GROUP_SIZE": group_size,
        "SOFT_CAP": int(soft_cap),
        "ALIBI": int(alibi),
        "WRITES_NEW": 0,  # in captured steps alone
    }
    if architecture not in _OVERLAPPING:
        known["INPUT_IS_FRESH"] = 0
    files = [file for file in CATALOGUE if file.stem in stems]
    return [variant for file in files for variant in file.variants(architecture, **known)]


def _stems(element: str, head_size: int, architecture: str) -> set[str]:
    if element == "float32" or (element == "bfloat16" and architecture in _TURING):
        return _ANY_MODEL | _ON_CUDA_CORES
    stems = {file.stem for file in CATALOGUE} - _ON_CUDA_CORES - _DECODE_STEPS
    if head_size == 256 and architecture in _TURING:  # see _PREFILL_LIMITS
        stems.add("prefill_simt")
    return stems

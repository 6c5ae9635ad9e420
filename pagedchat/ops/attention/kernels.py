"""What the kernels of attention are compiled for, as the plans say. Loads no torch."""

from collections.abc import Iterator
from itertools import product

from pagedchat.jit.kernel_file import KernelFile, Limit, Tuning, Use
from pagedchat.ops.attention import decode_grid, decode_plan, prefill_plan, simt_plan, wgmma_plan
from pagedchat.ops.attention.decode_grid import DecodeShape
from pagedchat.ops.common.choices import (
    CACHE_KINDS,
    ELEMENTS,
    FINISHED,
    FLAG,
    HEAD_SIZES,
    HOPPER_ONLY,
    NO_BFLOAT16,
    ON_CUDA_CORES,
    ON_TENSOR_CORES,
    TENSOR_CORE_ELEMENTS,
    TURING,
)

# --- decode ---------------------------------------------------------------------------------------------


def _split_tunings() -> Iterator[Tuning]:
    """Warps of a thread block, with the groups whose outputs fit into its shared memory."""
    wide = [size for size in HEAD_SIZES if 64 < size <= 128]
    small, of_bytes = range(1, decode_grid.BYTE_GROUP + 1), [kind for kind in CACHE_KINDS["CACHE_KIND"] if kind]
    yield Tuning(  # what few choices have comes first
        {"NUM_WARPS": decode_grid.BYTE_WARPS},
        {"HEAD_SIZE": wide, "GROUP_SIZE": small, "CACHE_KIND": of_bytes},
    )
    yield Tuning({"NUM_WARPS": decode_plan.OWN_WARPS}, {"WHOLE_CONTEXT": [0]})
    for num_warps in decode_grid.NUM_WARPS:
        largest = {size: _largest_group(size, num_warps) for size in HEAD_SIZES}
        if not any(largest.values()):
            yield Tuning({"NUM_WARPS": num_warps})
            continue
        for head_size, group_size in largest.items():
            groups = {"GROUP_SIZE": range(1, group_size + 1)} if group_size else {}
            yield Tuning({"NUM_WARPS": num_warps}, {"HEAD_SIZE": [head_size], **groups})


def _largest_group(head_size: int, num_warps: int) -> int | None:
    """The most query heads to a KV head with which so many warps fit; None where any number does."""
    most = DecodeShape(1, 1, head_size).max_rows  # more of them go to several thread blocks
    sizes = range(most, 0, -1)
    largest = next(size for size in sizes if DecodeShape(1, size, head_size).resident_thread_blocks(num_warps))
    return largest if largest < most else None


_CAPTURED = {"INPUT_IS_FRESH": FLAG, "WRITES_NEW": FLAG, "EVEN_SPLITS": FLAG, "HANDS_OVER": FLAG}
_NOT_HANDED = Limit(
    "places in the L2 cache are kept for what is handed over, from sm_80 on", TURING, where={"HANDS_OVER": [1]}
)

_DECODE = (
    KernelFile(
        "decode_simt",
        ("decode_simt",),
        Use.CUDA_CORES,
        {**ON_CUDA_CORES, **FINISHED},
        (Tuning({"NUM_WARPS": simt_plan.NUM_WARPS}),),
    ),
    KernelFile(
        "decode_split",
        ("decode_split",),
        Use.TENSOR_CORES,
        {**ON_TENSOR_CORES, "WHOLE_CONTEXT": FLAG, **_CAPTURED, **FINISHED, **CACHE_KINDS},
        tuple(_split_tunings()),
        (NO_BFLOAT16, _NOT_HANDED),
    ),
    KernelFile(
        "decode_shared",
        ("decode_shared",),
        Use.TENSOR_CORES,
        {**ON_TENSOR_CORES, "INPUT_IS_FRESH": FLAG},
        (Tuning({"NUM_WARPS": decode_plan.PREFIX_WARPS}),),
        (NO_BFLOAT16,),
    ),
)

# --- prefill --------------------------------------------------------------------------------------------

_100_KIB = frozenset({"sm_86", "sm_89", "sm_120"})
_TOO_LITTLE = "a thread block has too little shared memory for the tile"
_TILE_LIMITS = (
    Limit(_TOO_LITTLE, TURING, where={"HEAD_SIZE": [256]}),
    Limit(_TOO_LITTLE, TURING, where={"HEAD_SIZE": [112, 128], "TILE_KEYS": [64]}),
    Limit(_TOO_LITTLE, TURING, where={"HEAD_SIZE": [96], "WARP_ROWS": [32]}),
    Limit(_TOO_LITTLE, _100_KIB, where={"HEAD_SIZE": [256], "TILE_KEYS": [64]}),
    Limit("the larger tile fits", TURING, but=True, where={"HEAD_SIZE": [112, 128], "TILE_KEYS": [32]}),
    Limit("the larger tile fits", _100_KIB, but=True, where={"HEAD_SIZE": [256], "TILE_KEYS": [32]}),
)
"""`prefill_plan.choose_tile` in words; a test holds them to it."""
_SMALL_HEADS = [112, 128, 256]
"""For which `prefill_plan.NARROW` does not fit everywhere."""


def _wgmma_tunings() -> Iterator[Tuning]:
    for head_size, soft_cap, alibi in product(wgmma_plan.TILES, FLAG, FLAG):
        tiles = wgmma_plan.tiles_of(head_size, finishes_scores=bool(soft_cap or alibi))
        for tile in sorted(tiles, key=lambda tile: tile.consumers == 2):  # what every head size has comes last
            yield Tuning(tile.constants, {"HEAD_SIZE": [head_size], "SOFT_CAP": [soft_cap], "ALIBI": [alibi]})


_PREFILL = (
    KernelFile(
        "prefill_mma",
        ("prefill_mma",),
        Use.TENSOR_CORES,
        {
            **ON_TENSOR_CORES,
            "SPLIT_KEYS": FLAG,
            "PART_KEYS": (0, prefill_plan.PART_KEYS),
            **FINISHED,
            **CACHE_KINDS,
        },
        (
            Tuning(
                prefill_plan.WIDE.constants,
                {"HEAD_SIZE": [size for size in HEAD_SIZES if size <= prefill_plan.MOST_WIDE], "PART_KEYS": [0]},
            ),
            Tuning(prefill_plan.NARROW.constants),
            Tuning(prefill_plan.SMALL.constants, {"HEAD_SIZE": _SMALL_HEADS}),
        ),
        (NO_BFLOAT16, *_TILE_LIMITS),
    ),
    KernelFile(
        "prefill_merge",
        ("prefill_merge",),
        Use.TENSOR_CORES,
        {"ELEMENT": TENSOR_CORE_ELEMENTS, "HEAD_SIZE": HEAD_SIZES, "IN_ORDER": FLAG, **FINISHED},
    ),
    KernelFile("prefill_simt", ("prefill_simt",), Use.CUDA_CORES, {**ON_CUDA_CORES, **FINISHED}),
    KernelFile(
        "prefill_wgmma",
        ("prefill_wgmma",),
        Use.TENSOR_CORES,
        {**ON_TENSOR_CORES, **FINISHED},
        tuple(_wgmma_tunings()),
        (HOPPER_ONLY,),
    ),
)

KERNELS = (
    KernelFile(
        "merge_attn_states",
        ("merge_attn_states",),
        Use.LIBRARY,
        {"ELEMENT": ELEMENTS, "HEAD_SIZE": HEAD_SIZES},
    ),
    *_DECODE,
    *_PREFILL,
)

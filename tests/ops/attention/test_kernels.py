"""What is declared of the kernels of attention is what their plans choose."""

import pytest

from pagedchat.jit.architecture import architecture_of
from pagedchat.ops.attention.decode_grid import BYTE_WARPS, NUM_WARPS, DecodeShape
from pagedchat.ops.attention.kernels import KERNELS
from pagedchat.ops.attention.prefill_plan import choose_tile
from pagedchat.ops.common.choices import BLOCK_SIZES, HEAD_SIZES
from tests.ops.recorder import SHARED_BYTES

FILES = {file.stem: file for file in KERNELS}
KNOWN = {"ELEMENT": "float16", "SOFT_CAP": 0, "ALIBI": 0, "SINKS": 0, "CACHE_KIND": 0}


@pytest.mark.parametrize("capability", SHARED_BYTES, ids=lambda pair: architecture_of(*pair))
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("head_size", HEAD_SIZES)
def test_tiles_of_prefill_are_those_that_fit(capability: tuple[int, int], head_size: int, block_size: int) -> None:
    limit = SHARED_BYTES[capability] << 10
    chosen = {choose_tile(head_size, block_size, num_rows, limit) for num_rows in (1, 64, 65, 5000)} - {None}
    known = {**KNOWN, "HEAD_SIZE": head_size, "BLOCK_SIZE": block_size, "GROUP_SIZE": 1, "SPLIT_KEYS": 0}
    known["PART_KEYS"] = 0
    listed = list(FILES["prefill_mma"].variants(architecture_of(*capability), **known))
    wanted = [{name: str(value) for name, value in tile.constants.items()} for tile in chosen if tile]
    assert len(listed) == len(wanted)
    assert all(any(variant.constants.items() >= tile.items() for variant in listed) for tile in wanted)


@pytest.mark.parametrize("head_size", HEAD_SIZES)
@pytest.mark.parametrize("group_size", [1, 4, 5, 6, 10, 11, 16, 17, 20, 21, 40])
@pytest.mark.parametrize("cache_kind", [0, 1, 2])
def test_warps_that_decode_are_those_that_fit(head_size: int, group_size: int, cache_kind: int) -> None:
    shape = DecodeShape(1, group_size, head_size, element_bytes=1 if cache_kind else 2)
    known = {**KNOWN, "HEAD_SIZE": head_size, "BLOCK_SIZE": 16, "GROUP_SIZE": group_size, "CACHE_KIND": cache_kind}
    flags = {"WHOLE_CONTEXT": 1, "INPUT_IS_FRESH": 0, "WRITES_NEW": 0}
    listed = {int(v.constants["NUM_WARPS"]) for v in FILES["decode_split"].variants("sm_90", **known, **flags)}
    assert listed == {count for count in (*NUM_WARPS, BYTE_WARPS) if shape.resident_thread_blocks(count)}

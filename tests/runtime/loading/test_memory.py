import pytest
import torch

from pagedchat.config import GIB
from pagedchat.errors import DeviceError
from pagedchat.runtime.attention.backend import CacheShape
from pagedchat.runtime.loading.memory import (
    check_fits,
    cuda_memory,
    default_cpu_memory,
    graph_memory,
    num_blocks_for,
    num_host_blocks_for,
    useful_blocks,
)

OPT_125M = CacheShape(num_layers=12, block_size=16, num_heads=12, num_kv_heads=12, head_dim=64, dtype=torch.float16)


def test_published_figure_for_opt_125m() -> None:
    assert OPT_125M.page_bytes == 49_152
    num_blocks = num_blocks_for(21_946_158_284, OPT_125M.block_bytes)
    assert num_blocks == 37_207
    assert num_blocks * OPT_125M.block_size == 595_312


def test_last_block_must_fit_whole() -> None:
    assert num_blocks_for(3 * OPT_125M.block_bytes, OPT_125M.block_bytes) == 3
    assert num_blocks_for(3 * OPT_125M.block_bytes - 1, OPT_125M.block_bytes) == 2


@pytest.mark.parametrize("memory", [OPT_125M.block_bytes - 1, 0, -5])
def test_no_room_for_one_block(memory: int) -> None:
    with pytest.raises(DeviceError, match="one block takes 576 KiB") as caught:
        num_blocks_for(memory, OPT_125M.block_bytes)
    assert "--kv-cache-memory" in caught.value.hint


def test_pool_larger_than_what_is_free() -> None:
    check_fits(10, 100, 1000)
    with pytest.raises(DeviceError, match="11 blocks take"):
        check_fits(11, 100, 1000)


def test_cpu_default_is_a_quarter_of_free_memory_up_to_4_gib() -> None:
    assert default_cpu_memory(8 * GIB) == 2 * GIB
    assert default_cpu_memory(64 * GIB) == 4 * GIB


def test_gpu_share_counts_what_others_hold() -> None:
    # 100 in all; others hold 20; our allocator holds 15, of which a step needs 10 at its peak
    assert cuda_memory(total=100, free=65, reserved=15, peak=10, utilization=0.9) == 60
    assert cuda_memory(total=100, free=65, reserved=15, peak=10, utilization=0.2) == -10
    assert cuda_memory(total=100, free=65, reserved=15, peak=10, utilization=1.0) == 70 - graph_memory(100)


def test_captured_steps_get_a_share_of_the_gpu_up_to_2_gib() -> None:
    assert graph_memory(8 * GIB) == int(0.04 * 8 * GIB)
    assert graph_memory(140 * GIB) == 2 * GIB


def test_host_blocks_are_bounded_by_swap_space_free_memory_and_use() -> None:
    assert num_host_blocks_for(1000, 100_000, 10, 500) == 100
    assert num_host_blocks_for(1000, 2000, 10, 500) == 50
    assert num_host_blocks_for(1000, 100_000, 10, 7) == 7
    assert num_host_blocks_for(0, 100_000, 10, 500) == 0


def test_useful_blocks_round_up_per_sequence() -> None:
    assert useful_blocks(model_len=17, block_size=16, max_num_seqs=3) == 6

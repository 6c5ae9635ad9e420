"""Sequences on their way to host memory and back: which blocks are moved, which are found, in which order."""

import pytest

from pagedchat import cache_events as ev
from pagedchat.engine.block_manager import BlockManager
from pagedchat.engine.output import BlockOp
from pagedchat.engine.sequence import Sequence
from pagedchat.engine.swapping import Swapper
from tests.engine.test_core import tokens


def computed(blocks: BlockManager, length: int) -> Sequence:
    seq = Sequence(1)
    seq.token_ids = tokens(length)
    assert blocks.prepare_write(seq, length)
    seq.num_computed = length
    blocks.cache_full_blocks(seq)
    blocks.events.clear()
    return seq


def test_a_sequence_goes_and_comes_back_with_its_full_blocks_found_where_they_were():
    blocks = BlockManager(4, 4, 3)
    swapper, seq = Swapper(blocks), computed(blocks, 10)
    assert swapper.swap_out(seq)
    assert blocks.block_ops == [BlockOp("swap_out", block_id, block_id) for block_id in range(3)]
    assert blocks.events == [ev.SwappedOut(1, [0, 1, 2], [0, 1, 2], [True] * 3)]
    assert (seq.block_table, seq.host_block_table, seq.writable_len) == ([], [0, 1, 2], 0)
    assert (list(blocks.pool.cached_blocks), blocks.pool.free_blocks) == ([1, 0], [3, 2])
    assert swapper.found_on_device(seq) == [0, 1]
    assert [swapper.num_missing(seq, length) for length in (10, 13)] == [3, 4], "found ones are available too"
    blocks.pool.share(0)
    assert swapper.num_missing(seq, 10) == 2, "but not those that somebody holds"
    blocks.block_ops.clear()
    blocks.events.clear()
    swapper.swap_in(seq)
    assert blocks.block_ops == [BlockOp("swap_in", 2, 2)]
    assert blocks.events == [ev.SwappedIn(1, [0, 1, 2], [0, 1, 2], [False, False, True])]
    assert (seq.block_table, seq.host_block_table) == ([0, 1, 2], [])
    assert blocks.host.pool.free_blocks == [2, 1, 0], "the first is taken next, as before"
    assert (swapper.num_swaps_out, swapper.num_swaps_in) == (3, 1)


def test_blocks_without_a_hash_are_dropped_from_the_end():
    blocks = BlockManager(4, 4, 3, enable_prefix_caching=False)
    swapper, seq = Swapper(blocks), computed(blocks, 10)
    assert swapper.swap_out(seq)
    assert blocks.pool.free_blocks == [3, 2, 1, 0]
    assert swapper.found_on_device(seq) == []


@pytest.mark.parametrize(("num_host_blocks", "fits"), [(2, False), (3, True)])
def test_a_sequence_moves_where_exactly_as_many_host_blocks_are_free(num_host_blocks: int, fits: bool):
    blocks = BlockManager(4, 4, num_host_blocks)
    seq = computed(blocks, 10)
    assert Swapper(blocks).swap_out(seq) is fits
    assert bool(seq.block_table) is not fits
    assert bool(blocks.events) is fits


def test_who_is_cut_in_host_memory_gives_back_exactly_what_is_beyond_the_cut():
    blocks = BlockManager(4, 4, 3)
    seq = computed(blocks, 10)
    Swapper(blocks).swap_out(seq)
    blocks.events.clear()
    seq.num_computed = 5
    blocks.truncate(seq)
    assert blocks.events == [ev.HostBlocksFreed(1, [2])]
    assert (seq.host_block_table, blocks.host.pool.num_in_use) == ([0, 1], 2)
    blocks.free(seq)
    assert (seq.host_block_table, blocks.host.pool.num_in_use) == ([], 0)

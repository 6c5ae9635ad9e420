"""Blocks found and missing, copied and written in place; where a lookup in the prefix cache ended."""

import pytest

from pagedchat import cache_events as ev
from pagedchat.engine.block_manager import NO_MATCH, BlockManager, PrefixMatch
from pagedchat.engine.output import BlockOp
from pagedchat.engine.sequence import Sequence
from tests.engine.test_core import ask, ask_and_finish, finish, kinds, make_engine, tokens


def missed(engine, prompt) -> list[ev.PrefixMissed]:
    engine.flush()
    ask(engine, prompt)
    return kinds(finish(engine), ev.PrefixMissed)


@pytest.fixture
def engine():
    """Blocks 0 to 2 hold twelve tokens from 100 on."""
    engine = make_engine()
    ask_and_finish(engine, tokens(12))
    return engine


def test_a_miss_inside_a_block_names_that_block_and_its_token(engine):
    assert missed(engine, [*tokens(10), 7, 7]) == [ev.PrefixMissed(2, 10, 7, 110, 2)]


def test_a_miss_between_blocks_names_the_newest_block_that_comes_there(engine):
    assert missed(engine, [*tokens(8), 7, 7]) == [ev.PrefixMissed(2, 8, 7, 108, 2)]
    ask_and_finish(engine, [*tokens(8), 5, 5, 5, 5, 5])
    assert missed(engine, [*tokens(8), 7, 7])[0].cached_token_id == 5


def test_a_miss_at_the_first_token_names_another_beginning(engine):
    assert missed(engine, tokens(6, 300)) == [ev.PrefixMissed(2, 0, 300, 100, 0)]


def test_a_miss_after_all_that_is_cached_names_nothing(engine):
    assert missed(engine, tokens(16)) == [ev.PrefixMissed(2, 12, 112, -1, -1)]
    assert make_engine().flush() is None
    assert missed(make_engine(), tokens(6)) == [ev.PrefixMissed(1, 0, 100, -1, -1)]


def test_what_is_found_whole_or_is_too_short_to_be_looked_up_misses_nothing(engine):
    assert missed(engine, tokens(12)) == []
    assert missed(engine, tokens(4, 300)) == []
    [found] = missed(engine, tokens(5, 500))
    assert (found.position, found.cached_token_id) == (0, 300), "the last of five tokens is not looked up"


def test_of_a_turn_only_what_is_new_is_looked_up(engine):
    seq = ask_and_finish(engine, tokens(8))
    engine.rewind(seq, 8)
    assert missed(engine, [*tokens(8), 7, 7, 7, 7, 7]), "five tokens after eight that are there"
    ask(engine, [9, 9, 9], seq_id=seq)
    assert kinds(finish(engine), ev.PrefixMissed) == [], "three are no block's worth"


def test_a_turn_goes_on_with_what_another_has_computed(engine):
    """The blocks that a sequence has end where those begin that it finds."""
    seq = ask_and_finish(engine, tokens(8))
    other = ask_and_finish(engine, tokens(16))
    engine.rewind(seq, 8)
    ask(engine, tokens(8, 108), seq_id=seq)
    [hit] = kinds(finish(engine), ev.PrefixHit)
    assert hit == ev.PrefixHit(seq, engine.sequences[other].block_table[2:4], 7)


def test_a_turn_writes_on_in_the_block_in_which_the_last_one_ended():
    engine = make_engine()
    seq = ask_and_finish(engine, tokens(6))
    ask(engine, [7], seq_id=seq)
    events = finish(engine)
    assert kinds(events, ev.BlockCopied, ev.BlockUncached) == []
    assert engine.sequences[seq].block_table == [0, 1]


def test_a_block_that_a_prompt_just_fills_is_waited_for_too():
    engine = make_engine(max_num_batched_tokens=6)
    first, longer = ask(engine, tokens(8)), ask(engine, tokens(12))
    engine.step()
    assert [(entry.seq_id, entry.num_prefill) for entry in engine.step().batch] == [(first, 2)]
    finish(engine)
    assert engine.sequences[longer].num_cached_tokens == 8


def test_without_prefix_caching_nothing_is_missed():
    assert missed(make_engine(enable_prefix_caching=False), tokens(12)) == []


def test_a_request_tells_its_first_lookup_only():
    engine = make_engine(num_blocks=6)
    for start in (100, 300):
        ask(engine, tokens(8, start), max_tokens=12)
    events = finish(engine)
    assert kinds(events, ev.SequencePreempted)
    assert [event.seq_id for event in kinds(events, ev.PrefixMissed)] == [1, 2]


# --- the manager alone ------------------------------------------------------------------------------


def manager(num_blocks: int = 8) -> BlockManager:
    return BlockManager(num_blocks, 4)


def with_tokens(blocks: BlockManager, length: int, num_computed: int = 0, start: int = 100) -> Sequence:
    """A sequence with blocks for what is computed, the full ones findable."""
    seq = Sequence(1)
    seq.token_ids = tokens(length, start)
    if num_computed:
        assert blocks.prepare_write(seq, num_computed)
        seq.num_computed = num_computed
        blocks.cache_full_blocks(seq)
    return seq


def test_by_default_there_is_a_prefix_cache_and_no_host_memory():
    assert manager().enable_prefix_caching
    assert manager().host.num_free == 0


def test_missing_are_the_blocks_that_are_not_there_yet():
    blocks = manager()
    assert blocks.num_missing(with_tokens(blocks, 10), 10) == 3
    seq = with_tokens(blocks, 10, num_computed=6)
    assert [blocks.num_missing(seq, length) for length in (6, 8, 9, 13)] == [0, 0, 1, 2]


def test_missing_are_the_cached_blocks_of_a_match_and_a_copy_of_the_one_it_ends_in():
    blocks = manager()
    owner, seq = with_tokens(blocks, 12, num_computed=12), with_tokens(blocks, 14)
    whole, partial = PrefixMatch([0, 1], 8), PrefixMatch([0, 1, 2], 10)
    assert blocks.num_missing(seq, 14, whole) == 2
    assert blocks.num_missing(seq, 14, partial) == 1 + 1
    assert blocks.num_missing(seq, 8, whole) == 0
    blocks.free(owner)  # nobody holds them: to take them makes them unavailable to others
    assert blocks.num_missing(seq, 14, whole) == 2 + 2
    assert blocks.num_missing(seq, 14, partial) == 1 + 1 + 3


def test_missing_is_a_copy_of_the_block_that_is_shared():
    blocks = manager()
    parent, child = with_tokens(blocks, 6, num_computed=6), Sequence(2)
    blocks.fork(parent, child)
    assert [blocks.num_missing(child, length, NO_MATCH) for length in (6, 8, 9)] == [1, 1, 2]


def test_a_pinned_block_is_of_use_only_to_those_that_have_or_find_it():
    blocks = manager(4)
    holder = with_tokens(blocks, 12, num_computed=8)
    for block_id in holder.block_table:
        blocks.pool.pin(block_id)
    stranger = with_tokens(blocks, 12, start=300)
    assert blocks.fits(holder)
    assert not blocks.fits(stranger)
    assert blocks.fits(stranger, [1])
    stranger.token_ids = tokens(16, 300)
    assert not blocks.fits(stranger, [1, 2])
    assert blocks.fits(stranger, [0, 1])


def test_a_shared_block_is_copied_where_exactly_one_can_be_had():
    blocks = manager(3)
    parent, child = with_tokens(blocks, 6, num_computed=6), Sequence(2)
    blocks.fork(parent, child)
    blocks.events.clear()
    assert blocks.prepare_write(child, 7)
    assert blocks.block_ops == [BlockOp("copy", 1, 2)]
    assert blocks.events == [ev.BlockCopied(2, 1, 1, 2, 2, "shared")]
    assert not blocks.prepare_write(parent, 9), "and now there is none"


def test_a_findable_block_is_written_in_place_where_none_can_be_had_for_a_copy():
    blocks = manager(2)
    seq = with_tokens(blocks, 8, num_computed=8)
    seq.num_computed = 6
    blocks.truncate(seq)
    blocks.events.clear()
    assert blocks.prepare_write(seq, 7)
    assert (seq.block_table, blocks.block_ops) == ([0, 1], [])
    assert blocks.events == [ev.BlockUncached(1, "write")]
    assert list(blocks.cache.block_ids) == [0]


def test_who_shares_blocks_or_has_lost_some_may_write_nowhere_unasked():
    blocks = manager()
    parent, child, finder = with_tokens(blocks, 9, num_computed=9), Sequence(2), with_tokens(blocks, 9)
    assert blocks.prepare_write(parent, 10)
    assert parent.writable_len == 12
    blocks.fork(parent, child)
    assert parent.writable_len == child.writable_len == 0
    finder.writable_len = 12
    blocks.take_prefix(finder, blocks.match_prefix(finder))
    assert (finder.num_computed, finder.writable_len) == (8, 0)
    assert blocks.prepare_write(finder, 12)
    blocks.free(finder)
    assert finder.writable_len == 0


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("pinned", [True, False])
def test_a_block_whose_contents_are_forgotten_is_not_found_pinned_or_held_as_it_may_be(held: bool, pinned: bool):
    blocks = manager(3)
    owner = with_tokens(blocks, 4, num_computed=4)
    if pinned:
        blocks.pool.pin(0)
    if not held:
        blocks.free(owner)
    blocks.events.clear()
    blocks.forget_contents(0, "fault")
    lost = [ev.BlockUncached(0, "fault")] if held else [ev.BlockEvicted(0, "fault")]
    assert blocks.events == [ev.BlockUnpinned(0)] * pinned + lost
    assert (0 in blocks.cache, list(blocks.pool.pinned), list(blocks.pool.cached_blocks)) == (False, [], [])
    assert blocks.pool.free_blocks == ([2, 1] if held else [2, 1, 0])
    blocks.forget_contents(0, "fault")
    assert len(blocks.events) == pinned + 1, "once is enough"

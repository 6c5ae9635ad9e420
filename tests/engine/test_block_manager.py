"""Where a lookup in the prefix cache ended, and what is cached there instead."""

import pytest

from pagedchat import events as ev
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


def test_without_prefix_caching_nothing_is_missed():
    assert missed(make_engine(enable_prefix_caching=False), tokens(12)) == []


def test_a_request_tells_its_first_lookup_only():
    engine = make_engine(num_blocks=6)
    for start in (100, 300):
        ask(engine, tokens(8, start), max_tokens=12)
    events = finish(engine)
    assert kinds(events, ev.SequencePreempted)
    assert [event.seq_id for event in kinds(events, ev.PrefixMissed)] == [1, 2]

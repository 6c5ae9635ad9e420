"""Blocks before they are needed: a few in each step, none where they are short, and all of them come back."""

import pytest

from pagedchat import cache_events as ev
from pagedchat.engine.blocks_ahead import AT_ONCE
from pagedchat.engine.core import EngineCore
from pagedchat.engine.sequence import Sequence
from tests.engine.test_core import ask, kinds, make_engine, tokens

BLOCK_SIZE = 16


def decoding(num_seqs: int, prompt_len: int, max_tokens: int = 100, *, spare: int = 20, **limits) -> EngineCore:
    """Sequences of the same length with nothing in common, all of whose prompts are computed."""
    sizes = {"block_size": BLOCK_SIZE, "max_num_batched_tokens": num_seqs * prompt_len, "max_num_seqs": num_seqs}
    engine = make_engine(num_blocks=num_seqs * spare, **({"reserve_ahead": True} | sizes | limits))
    for i in range(num_seqs):
        ask(engine, [i, *tokens(prompt_len - 1)], max_tokens=max_tokens)
    engine.step()
    return engine


def num_ahead(engine: EngineCore, seq: Sequence) -> int:
    """Blocks after the one to which the sequence has written last."""
    return len(seq.block_table) - engine.blocks.num_blocks_for(seq.num_computed)


@pytest.mark.parametrize(("num_seqs", "at_most"), [(33, AT_ONCE), (256, AT_ONCE), (300, 38)])
def test_equal_sequences_get_their_blocks_over_several_steps(num_seqs: int, at_most: int) -> None:
    engine = decoding(num_seqs, 20)
    given = []
    for _ in range(36):
        given.append(len(kinds(engine.step().events, ev.BlockAllocated)))
        for seq in engine.sequences.values():
            assert seq.writable_len > seq.num_computed  # the step after may begin
            assert num_ahead(engine, seq) <= 1
    assert max(given) == at_most
    assert sum(given) >= 2 * num_seqs
    engine.check_integrity()


def test_the_last_of_some_get_theirs_in_time_though_those_before_have_ended() -> None:
    engine = decoding(80, 20)
    for seq_id in range(1, 70):
        engine.step()
        engine.stop(seq_id)
        assert all(seq.writable_len > seq.num_computed for seq in engine.scheduler.queues.running)


@pytest.mark.parametrize("num_seqs", [1, 3, AT_ONCE])
def test_few_sequences_get_their_block_one_step_before(num_seqs: int) -> None:
    engine = decoding(num_seqs, 20)
    given = [len(kinds(engine.step().events, ev.BlockAllocated)) for _ in range(32)]
    assert given == [num_seqs if step in {11, 27} else 0 for step in range(32)]


def test_of_sequences_that_are_not_equally_long_each_gets_its_block_when_it_is_due() -> None:
    engine = make_engine(num_blocks=60, block_size=BLOCK_SIZE, reserve_ahead=True)
    for i in range(3):
        ask(engine, [i, *tokens(19 - i)], max_tokens=40)
    engine.step()
    given = [[event.seq_id for event in kinds(engine.step().events, ev.BlockAllocated)] for step in range(31)]
    assert {step: who for step, who in enumerate(given) if who} == {
        11: [1], 12: [2], 13: [3], 27: [1], 28: [2], 29: [3]
    }  # fmt: skip


def test_beside_a_prompt_in_pieces_decodes_get_theirs_one_step_before_too() -> None:
    engine = make_engine(num_blocks=60, max_num_batched_tokens=6, reserve_ahead=True)
    seq = engine.sequences[ask(engine, tokens(5), max_tokens=60)]
    engine.step()
    long = engine.sequences[ask(engine, tokens(80, 300), max_tokens=1)]
    while long.status != "parked":
        engine.step()
        assert seq.writable_len > seq.num_computed
        assert len(seq.block_table) == engine.blocks.num_blocks_for(seq.num_computed + 1), "and no sooner"


@pytest.mark.parametrize("block_size", [1, 2])
def test_where_blocks_are_small_everybody_has_a_turn_in_every_step(block_size: int) -> None:
    engine = decoding(40, 20, block_size=block_size, spare=60)
    for _ in range(8):
        engine.step()
        assert all(seq.writable_len > seq.num_computed for seq in engine.sequences.values())


def test_no_more_blocks_are_given_than_there_are_to_spare() -> None:
    num_taken, num_plenty, num_spare = 40 * 2, 40 * 4, 3
    engine = make_engine(
        num_blocks=num_taken + num_plenty + num_spare,
        block_size=BLOCK_SIZE,
        max_num_batched_tokens=800,
        reserve_ahead=True,
    )
    for i in range(40):
        ask(engine, [i, *tokens(19)], max_tokens=100)
    given = [len(kinds(engine.step().events, ev.BlockAllocated)) for _ in range(3)]
    assert given == [num_taken, num_spare, 0]


def test_nobody_has_blocks_ahead_where_it_was_not_asked_for() -> None:
    engine = decoding(40, 20, reserve_ahead=False)
    for _ in range(40):
        engine.step()
        assert not any(num_ahead(engine, seq) for seq in engine.sequences.values())


def test_nobody_has_blocks_ahead_where_they_are_short() -> None:
    engine = decoding(40, 20, max_tokens=45, spare=6)  # two blocks each are taken
    for _ in range(40):
        engine.step()
        assert not any(num_ahead(engine, seq) for seq in engine.sequences.values())
    assert engine.scheduler.num_preemptions == 0


@pytest.mark.parametrize(("max_tokens", "given"), [(13, 0), (14, 3), (15, 3)])
def test_the_last_block_comes_one_step_before_too_if_a_token_is_computed_in_it(max_tokens: int, given: int) -> None:
    engine = decoding(3, 20, max_tokens=max_tokens)
    for _ in range(11):
        engine.step()
    assert len(kinds(engine.step().events, ev.BlockAllocated)) == given


def test_no_block_is_taken_for_a_token_that_is_not_computed() -> None:
    engine = decoding(40, 20, max_tokens=13)  # the last token, at position 32, is sampled but not computed
    while engine.has_work:
        engine.step()
        assert all(len(seq.block_table) <= 2 for seq in engine.sequences.values())
    engine = decoding(40, 20, max_tokens=14)
    while engine.has_work:
        engine.step()
    assert {len(seq.block_table) for seq in engine.sequences.values()} == {3}


@pytest.fixture
def with_blocks_ahead() -> EngineCore:
    engine = decoding(40, 20, num_host_blocks=400, preemption_mode="swap")
    engine.step()
    engine.step()
    assert all(num_ahead(engine, seq) == 1 for seq in engine.sequences.values())
    return engine


def test_blocks_ahead_come_back_when_a_sequence_stops_or_is_cut(with_blocks_ahead: EngineCore) -> None:
    engine = with_blocks_ahead
    in_use = engine.blocks.pool.num_in_use
    engine.stop(1)
    engine.rewind(2, 18)
    engine.close(3)
    assert engine.blocks.pool.num_in_use == in_use - 1 - 1 - 3
    engine.check_integrity()


def test_a_fork_shares_no_block_that_nobody_has_written_to(with_blocks_ahead: EngineCore) -> None:
    engine = with_blocks_ahead
    child = engine.sequences[engine.fork(1)]
    assert num_ahead(engine, engine.sequences[1]) == num_ahead(engine, child) == 0
    report = engine.step()
    assert len(kinds(report.events, ev.BlockCopied)) == 1
    engine.check_integrity()


def test_blocks_ahead_are_not_swapped_out(with_blocks_ahead: EngineCore) -> None:
    engine = with_blocks_ahead
    num_blocks = engine.blocks.num_blocks_for(engine.sequences[40].num_computed)
    pool = engine.blocks.pool
    engine.controls.set_limit(pool.num_in_use - 1)
    assert engine.sequences[40].status == "swapped"
    [moved] = kinds(engine.step().events, ev.SwappedOut)
    assert len(moved.block_ids) == num_blocks
    engine.check_integrity()


def blocks_after_prompt(length: int, max_tokens: int = 5, **limits) -> int:
    engine = make_engine(num_blocks=20, **({"block_size": BLOCK_SIZE, "reserve_ahead": True} | limits))
    seq_id = ask(engine, tokens(length), max_tokens=max_tokens)
    while engine.sequences[seq_id].num_computed < length:
        engine.step()
        engine.check_integrity()
    return len(engine.sequences[seq_id].block_table)


def test_a_reply_has_its_first_block_when_its_prompt_is_computed() -> None:
    assert [blocks_after_prompt(length) for length in (31, 32, 33)] == [2, 3, 3]
    assert blocks_after_prompt(32, max_num_batched_tokens=10) == 3  # in pieces
    assert blocks_after_prompt(32, reserve_ahead=False) == 2
    assert [blocks_after_prompt(32, max_tokens=max_tokens) for max_tokens in (1, 2)] == [2, 3]


def test_a_reply_of_one_token_is_given_no_block() -> None:
    engine = make_engine(num_blocks=20, block_size=BLOCK_SIZE, reserve_ahead=True)
    ask(engine, tokens(32), max_tokens=1)
    assert len(kinds(engine.step().events, ev.BlockAllocated)) == 2


@pytest.mark.parametrize(("num_seqs", "num_blocks", "num_given"), [(1, 6, 0), (1, 7, 1), (2, 13, 1), (2, 14, 2)])
def test_replies_wait_for_their_first_blocks_where_blocks_are_short(num_seqs, num_blocks, num_given) -> None:
    engine = make_engine(num_blocks=num_blocks, block_size=BLOCK_SIZE, reserve_ahead=True)
    for start in (100, 300)[:num_seqs]:
        ask(engine, tokens(32, start), max_tokens=5)
    assert len(kinds(engine.step().events, ev.BlockAllocated)) == 2 * num_seqs + num_given

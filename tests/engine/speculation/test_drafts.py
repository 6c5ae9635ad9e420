"""Drafts take nothing from anybody: their blocks go back, nobody gives way, and nobody finds what was rejected."""

import pytest

from pagedchat.config import SpeculationConfig
from pagedchat.engine.core import EngineCore
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.sampling_params import SamplingParams
from tests.engine.kv_simulator import KVSimulator, expected_reply

VOCAB, BLOCK_SIZE = 7, 2
PROMPT = [1, 2, 3, 1, 2]


def engine(
    num_blocks: int, draft: list[int] | None = None, most_drafted: int | None = None, **limits: object
) -> EngineCore:
    """With drafts that are always the same, where one is given."""
    speculation = SpeculationConfig(method="lookup", prompt_lookup_min=1, num_speculative_tokens=most_drafted)
    simulator = KVSimulator(num_blocks, BLOCK_SIZE, 0, VOCAB)
    core = EngineCore(
        EngineLimits(num_blocks=num_blocks, block_size=BLOCK_SIZE, speculation=speculation, **limits), simulator
    )
    core.scheduler.drafts.worth = None
    if draft is not None:
        core.scheduler.drafts._all_drafts = lambda running, left: [draft[: left // len(running)] for _ in running]  # type: ignore[method-assign]
    return core


def ask(core: EngineCore, max_tokens: int = 30, prompt: list[int] = PROMPT, **params: object) -> int:
    seq_id = core.open()
    core.extend(seq_id, prompt, SamplingParams(max_tokens=max_tokens, **params))
    return seq_id


@pytest.mark.parametrize(("most", "length"), [(None, 31), (7, 7), (64, 31)])
def test_what_is_looked_up_is_as_long_as_it_may_be_and_a_step_has_room_for(most, length):
    core = engine(100, most_drafted=most, most_draft_rows=32)
    ask(core, 100, [1, 2, 3, 4, 5] * 10)
    while not core.scheduler.drafts.num_drafts:
        core.step()
    assert core.scheduler.drafts.num_drafted == length


def test_blocks_of_rejected_tokens_are_given_back_after_the_step():
    core = engine(40, draft=[VOCAB] * 9)
    seq_id = ask(core)
    seq = core.sequences[seq_id]
    while core.has_work:
        report = core.step()
        core.check_integrity()
        needed = -(-(seq.num_computed + 1) // BLOCK_SIZE)
        assert len(seq.block_table) <= needed
        assert report.pool.in_use == len(seq.block_table)
    assert seq.output_token_ids == expected_reply(PROMPT, VOCAB, 30)
    assert core.scheduler.drafts.num_drafted > 100
    assert core.scheduler.drafts.num_accepted == 0


def test_nobody_gives_way_for_a_draft():
    """Two chats whose last tokens just fill the pool."""
    core = engine(18, draft=[VOCAB] * 9)
    for _ in range(2):
        ask(core, 13, [*PROMPT])
    core.sequences[2].token_ids[0] = 5
    while core.has_work:
        core.step()
    assert core.scheduler.num_preemptions == 0
    assert core.scheduler.drafts.num_drafted > 0


def test_what_was_rejected_is_not_found_again():
    core = engine(40, draft=[VOCAB] * 9)
    ask(core)
    while core.has_work:
        core.step()
        assert all(VOCAB not in entry.token_ids for entry in core.blocks.cache.entries())
    assert len(list(core.blocks.cache.entries())) > 10


def test_a_fork_in_the_midst_shares_no_slot_of_a_draft():
    core = engine(60)
    seq_id = ask(core)
    for _ in range(6):
        core.step()
    child = core.fork(seq_id)
    while core.has_work:
        core.step()
        core.check_integrity()
    for each in (seq_id, child):
        assert core.sequences[each].output_token_ids == expected_reply(PROMPT, VOCAB, 30)


@pytest.mark.parametrize("budget", [1, 2, 5])
def test_a_step_keeps_to_its_tokens(budget):
    core = engine(60, draft=[0] * 9, max_num_batched_tokens=budget)
    ask(core)
    while core.has_work:
        report = core.step()
        assert (
            sum(1 + entry.num_drafted if entry.num_decode else entry.num_prefill for entry in report.batch)
            <= budget
        )


def test_a_reply_is_not_longer_than_was_asked():
    core = engine(60)
    seq_id = ask(core, 3, [token for token in range(VOCAB) for _ in range(4)])
    num_drafted = []
    while core.has_work:
        num_drafted += [entry.num_drafted for entry in core.step().batch]
    assert max(num_drafted) == 1, "the first token is the prompt's, the second is sampled in any case"
    assert len(core.sequences[seq_id].output_token_ids) == 3


def test_a_request_that_wants_no_drafts_has_none():
    core = engine(60)
    ask(core, speculate="off")
    while core.has_work:
        core.step()
    assert core.scheduler.drafts.num_drafted == 0


def test_counters_are_those_of_the_batches():
    core = engine(60)
    ask(core)
    entries = []
    while core.has_work:
        report = core.step()
        entries += list(report.batch)
    counters = report.counters
    assert counters.drafts == sum(entry.num_drafted > 0 for entry in entries) > 0
    assert counters.draft_tokens == sum(entry.num_drafted for entry in entries)
    assert counters.accepted_tokens == sum(entry.num_accepted for entry in entries)
    assert counters.decode_tokens == sum(entry.num_decode for entry in entries)

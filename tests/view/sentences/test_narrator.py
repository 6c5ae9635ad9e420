"""Events in words: what happened, to whom, why, and which blocks a line leads to."""

import msgspec
import pytest

from pagedchat import cache_events as ce
from pagedchat import events as ev
from pagedchat.engine.mirror import CacheMirror
from pagedchat.step_batch import BatchEntry
from pagedchat.view.sentences.event_lines import GROUPS, EventLine
from pagedchat.view.sentences.narrator import Narrator
from pagedchat.view.sentences.words import milliseconds
from pagedchat.view.state.fold import Fold
from tests.scripted_reports import ScriptedEngine, pressed, story

TEXTS = {1: b"You", 2: b" are", 3: b" the", 4: b" a", 5: b" pirate", 6: b"\xf0\x9f", 7: b"\n", 8: b"\x1b[31m"}


def words(engine: ScriptedEngine, *kinds: str) -> list[str]:
    return [str(line) for line in engine.view.lines if line.kind in kinds]


def report(*happened: ce.CacheEvent, timings: ev.Timings | None = None) -> ev.StepReport:
    pool = ev.PoolCounts(8, 8, 0, 0, 0, 0, 0, 0)
    queues, times = ev.QueueLengths(0, 0, 0, 0), timings or ev.Timings()
    return ev.StepReport(3, 0.1, [], list(happened), pool, queues, times, ev.Counters())


def tell(*happened: ce.CacheEvent) -> EventLine:
    """The last line about these events, told to a pool of 8 blocks of 4 by somebody who knows the tokens' texts."""
    return narrated(report(*happened))[-1]


def narrated(told: ev.StepReport) -> list[EventLine]:
    mirror = CacheMirror(8, 4)
    narrator = Narrator(mirror, lambda seq_id: f"chat{seq_id}", TEXTS)
    Fold(mirror, [narrator])(told)
    return list(narrator.lines)


def opened(tokens: list[int], *blocks: int) -> list[ce.CacheEvent]:
    """Sequence 1 with these tokens and blocks, the first of them findable."""
    cached = [ce.BlockCached(blocks[0], b"h")] if blocks else []
    given = [ce.BlockAllocated(1, block) for block in blocks]
    return [ce.SequenceOpened(1), ce.SequenceExtended(1, tokens, 0), *given, *cached]


# --- what the engine does -----------------------------------------------------------------------------


def test_a_fork_copies_nothing_and_the_first_write_copies_one_block() -> None:
    assert words(story(), "FORK", "COW") == [
        "19 FORK 1 tale → 2 tale»a: 25 blocks shared, 0 copied",
        "19 COW 1 tale wrote 031 (ref 2) → 032, 1 slot",
    ]


def test_allocations_of_one_sequence_share_a_line() -> None:
    assert words(story(), "ALLOC")[:4] == [
        "1 ALLOC 1 tale +8: 000 001 002 003 …",
        "2 ALLOC 1 tale +8: 008 009 010 011 …",
        "3 ALLOC 1 tale +8: 016 017 018 019 …",
        "13 ALLOC 3 code +6: 024 025 026 027 …",
    ]


def test_preemption_by_swap_is_told_with_its_cost_its_gain_and_who_needed_the_room() -> None:
    assert words(pressed("swap"), "SWAP", "PREEMPT", "RESUME", "EVICT") == [
        "14 SWAP 3 tale» 5 blocks out, 5 copied: h000 h001 h002 h003 …",
        "14 PREEMPT 3 tale»: −20 tokens to host memory, +2 blocks for 1 tale",
        "15 SWAP 3 tale» 5 blocks in, 0 copied: 000 001 002 007 …",
        "15 RESUME 3 tale»: back from host memory with 5 blocks, nothing to recompute",
    ]


def test_preemption_by_recomputation_finds_again_what_is_still_there() -> None:
    assert words(pressed("recompute"), "FREE", "PREEMPT", "HIT", "RESUME") == [
        "14 FREE 3 tale» −5: 010 005 002 001 …",
        "14 PREEMPT 3 tale»: −20 tokens (20 still cached), +2 blocks for 1 tale",
        "15 HIT 3 tale» found 20 tokens in 5 blocks: 000 001 002 007 …",
        "15 RESUME 3 tale»: recomputes 0 tokens, 20 found in the cache",
    ]


def test_without_a_cache_all_is_computed_again() -> None:
    engine = ScriptedEngine(num_blocks=6, block_size=4, enable_prefix_caching=False, max_num_batched_tokens=16)
    engine.ask(1, 9, max_tokens=9)
    engine.ask(2, 7, max_tokens=9)
    engine.run(14)
    lost = next(line for line in words(engine, "PREEMPT") if "seq 2" in line)
    number = lost.partition("−")[2].partition(" ")[0]
    assert f"seq 2: recomputes {number} tokens" in "\n".join(words(engine, "RESUME"))


def test_rewind_park_evict_and_close_are_told() -> None:
    engine = ScriptedEngine(num_blocks=3, block_size=4)
    engine.view.token_texts.update({1000 + i: f" w{i}".encode() for i in range(8)})
    engine.ask(1, 8, max_tokens=1)
    engine.run()
    engine.core.rewind(1, 5)
    engine.core.close(1)
    engine.ask(2, 11, max_tokens=1)
    engine.run()
    assert words(engine, "PARK", "REWIND", "CLOSE", "EVICT", "FREE") == [
        "1 PARK seq 1 (length), keeps its blocks",
        "2 REWIND seq 1 cut to 5 tokens",
        "2 FREE seq 1 −2: 001 000",
        "2 CLOSE seq 1",
        '2 EVICT cached block 001, least recently used, held " w4 w5 w6 w7"',
        '2 EVICT cached block 000, least recently used, held " w0 w1 w2 w3"',
        "2 PARK seq 2 (length), keeps its blocks",
    ]


def test_step_lines_give_batch_tokens_and_phases() -> None:
    line = story().view.recent_events(1)[0]
    assert (line.step, line.kind, line.group, line.text) == (
        30,
        "STEP",
        "steps",
        "b3 3 tok  forward 3.1  sample .4 ms",
    )
    assert line.seq_ids == (1, 2, 4)


def test_every_line_has_a_known_group() -> None:
    for engine in (story(), pressed("swap"), pressed("recompute")):
        assert {line.kind for line in engine.view.lines} <= set(GROUPS)


@pytest.mark.parametrize(("seconds", "text"), [(0.0002, ".2"), (0.0031, "3.1"), (0.042, "42"), (0.00996, "10")])
def test_milliseconds_are_short(seconds: float, text: str) -> None:
    assert milliseconds(seconds) == text


# --- causes in words ----------------------------------------------------------------------------------


def test_a_miss_names_the_first_token_that_differs_and_what_comes_before_it() -> None:
    happened = [*opened([1, 2, 3, 5], 0), ce.PrefixMissed(1, 2, 3, 4, 6)]
    line = tell(*happened)
    assert str(line) == '3 MISS chat1 differs at token 2: " the" not " a" (block 006), after "You are"'
    assert (line.seq_ids, line.block_ids) == ((1,), (6,))


@pytest.mark.parametrize(
    ("position", "text"),
    [(16, "chat1: nothing cached continues after token 16"), (0, "chat1: nothing cached begins as it does")],
)
def test_a_miss_where_nothing_cached_comes_after(position: int, text: str) -> None:
    assert tell(*opened([1, 2, 3, 5]), ce.PrefixMissed(1, position, 3, -1, -1)).text == text


def test_a_token_whose_text_is_not_known_is_told_by_its_number() -> None:
    line = tell(*opened([1, 2, 3, 5], 0), ce.PrefixMissed(1, 0, 3, 99, 6))
    assert line.text == 'chat1 differs at token 0: " the" not "#99" (block 006)'


def test_text_of_tokens_is_one_line_and_commands_no_terminal() -> None:
    line = tell(*opened([7, 8, 6, 5], 2), ce.BlocksFreed(1, [2]), ce.BlockEvicted(2))
    assert line.text == 'cached block 002, held "¶\ufffd pirate"'


def test_pins_are_told_with_what_they_keep() -> None:
    kept = tell(*opened([1, 2, 3, 5], 2), ce.BlockPinned(2))
    assert (kept.kind, kept.text, kept.block_ids) == ("PIN", 'block 002 stays: "You are the pirate"', (2,))
    freed = tell(*opened([1, 2, 3, 5], 2), ce.BlockPinned(2), ce.BlockUnpinned(2))
    assert (freed.kind, freed.text) == ("UNPIN", "block 002 may be evicted again")


def test_a_limit_tells_what_is_left_of_the_pool() -> None:
    taken = tell(ce.BlocksWithheld([7, 6]), ce.BlocksWithheld([5]))
    assert (taken.kind, taken.text) == ("LIMIT", "5 of 8 blocks in the pool; 1 block withheld: 005")
    given = tell(ce.BlocksWithheld([7, 6, 5]), ce.BlocksReturned([5, 6]))
    assert (given.text, given.block_ids) == ("7 of 8 blocks in the pool; 2 blocks returned: 005 006", (5, 6))


def test_a_preemption_under_a_limit_says_so() -> None:
    line = tell(
        ce.BlocksWithheld([7, 6]),
        *opened([1, 2, 3, 5], 0),
        ce.BlocksFreed(1, [0]),
        ce.SequencePreempted(1, "recompute", 4, 1, "waiting"),
    )
    assert line.text == "chat1: −4 tokens, +1 block, limit 6"


def test_what_a_failed_step_costs_is_told_and_how_it_goes_on() -> None:
    lost = [*opened([1, 2, 3, 5], 0), ce.BlocksFreed(1, [0]), ce.ContentsLost(1, 4, "waiting")]
    line = tell(*lost)
    assert (line.kind, line.text) == ("LOST", "chat1: a step failed, −4 tokens")
    line = tell(*lost, ce.SequenceScheduled(1))
    assert (line.kind, line.text) == ("RESUME", "chat1: recomputes 4 tokens")


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("room", "cached block 002, least recently used, held"),
        ("limit", "cached block 002, least recently used, for the limit, held"),
        ("hand", "cached block 002, by hand, held"),
        ("flush", "cached block 002, by a flush, held"),
        ("fault", "cached block 002, a step failed, held"),
        ("", "cached block 002, held"),
    ],
)
def test_an_eviction_is_told_with_its_cause_and_an_old_one_without(cause: ce.EvictCause, words: str) -> None:
    line = tell(*opened([1, 2, 3, 5], 2), ce.BlocksFreed(1, [2]), ce.BlockEvicted(2, cause))
    assert line.text == f'{words} "You are the pirate"'


@pytest.mark.parametrize(
    ("cause", "why"),
    [
        ("shared", "ref 1"),
        ("hit", "findable, a hit ended in it"),
        ("rewind", "findable, cut back into it"),
        ("again", "findable, last token once more"),
        ("", "ref 1"),
    ],
)
def test_a_copy_is_told_with_its_cause(cause: ce.CopyCause, why: str) -> None:
    line = tell(*opened([1, 2, 3, 5], 2), ce.BlockCopied(1, 0, 2, 3, 2, cause))
    assert line.text == f"chat1 wrote 002 ({why}) → 003, 2 slots"


def test_by_hand_by_flush_and_by_limit_in_a_real_engine() -> None:
    engine = ScriptedEngine(num_blocks=6, block_size=4)
    engine.ask(1, 16, max_tokens=1)
    engine.run()
    engine.core.close(1)
    engine.core.controls.evict(1)
    engine.core.controls.set_limit(2)
    engine.core.controls.flush()
    engine.flush()
    assert [line.partition(" held")[0] for line in words(engine, "EVICT")] == [
        "1 EVICT cached block 001, by hand,",
        "1 EVICT cached block 003, least recently used, for the limit,",
        "1 EVICT cached block 002, by a flush,",
        "1 EVICT cached block 000, by a flush,",
    ]


def test_what_resumes_counts_only_what_it_had_and_has_lost() -> None:
    engine = ScriptedEngine(num_blocks=8, block_size=4, enable_prefix_caching=False, max_num_batched_tokens=64)
    engine.ask(1, 12, max_tokens=1)
    engine.run()
    engine.core.controls.set_limit(2)
    engine.core.controls.set_limit(None)
    engine.flush()
    engine.core.rewind(1, 5)
    engine.ask(1, 6, max_tokens=1)
    engine.run()
    assert words(engine, "PREEMPT", "RESUME") == [
        "1 PREEMPT seq 1: −12 tokens (none still cached), +3 blocks",
        "2 RESUME seq 1: recomputes 5 tokens",
    ]


def test_one_that_waits_is_told_once_for_a_lasting_cause() -> None:
    engine = ScriptedEngine(num_blocks=48)
    engine.core.controls.set_limit(1)
    engine.ask(1, 370)
    engine.run(2)
    engine.core.controls.set_limit(2)
    engine.run()
    assert words(engine, "WAIT") == [
        "0 WAIT seq 1: needs 24 blocks, the limit is 1",
        "0 WAIT seq 1: needs 24 blocks, the limit is 2",
    ]


def test_lines_know_their_blocks_and_sequences() -> None:
    by_kind = {line.kind: line for line in story().view.lines}
    assert by_kind["COW"].block_ids == (32, 31)
    assert by_kind["FORK"].seq_ids == (1, 2)
    assert len(by_kind["FORK"].block_ids) == 25
    assert by_kind["ALLOC"].block_ids == (39,)


def test_attention_is_told_apart_from_the_products_where_it_was_measured() -> None:
    timings = ev.Timings(schedule=0.0002, launch=0.0001, forward=0.003, attention=0.0009)
    told = report(ce.SequenceOpened(1), ce.BlockAllocated(1, 0), timings=timings)
    told = msgspec.structs.replace(told, batch=[BatchEntry(1, 1, 0, [])])
    line = narrated(told)[-1]
    assert line.text == "b1 1 tok  schedule .2  launch .1  attention .9  products 2.1 ms"

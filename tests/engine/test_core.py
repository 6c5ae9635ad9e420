"""The engine in small: exact blocks, exact events."""

import pytest

from pagedchat import cache_events as ce
from pagedchat import events as ev
from pagedchat.engine.core import EngineCore
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.output import ModelRunnerOutput, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.errors import RequestError
from pagedchat.step_batch import BatchEntry
from tests.engine.kv_simulator import KVSimulator, expected_reply

VOCAB = 50


def make_engine(num_blocks=16, num_host_blocks=0, **limits) -> EngineCore:
    defaults = {"block_size": 4, "model_len": 200, "max_num_batched_tokens": 64}
    limits = EngineLimits(num_blocks=num_blocks, num_host_blocks=num_host_blocks, **(defaults | limits))
    return EngineCore(limits, KVSimulator(num_blocks, limits.block_size, num_host_blocks, VOCAB))


def tokens(count: int, start: int = 100) -> list[int]:
    return list(range(start, start + count))


def ask(engine: EngineCore, prompt: list[int], max_tokens: int | None = 1, seq_id: int | None = None) -> int:
    if seq_id is None:
        seq_id = engine.open()
    engine.extend(seq_id, prompt, SamplingParams(max_tokens=max_tokens))
    return seq_id


def finish(engine: EngineCore) -> list[ce.CacheEvent]:
    events = []
    while engine.has_work:
        events += engine.step().events
        engine.check_integrity()
    return events


def kinds(events, *types):
    return [event for event in events if isinstance(event, types)]


def test_fork_shares_every_block_and_copies_exactly_one_at_the_first_write():
    engine = make_engine()
    first = ask(engine, tokens(10), max_tokens=2)  # 11 tokens computed: blocks 0, 1 full, block 2 with 3 of 4
    finish(engine)
    assert engine.sequences[first].block_table == [0, 1, 2]
    second = engine.fork(first)
    report = engine.flush()
    assert report.events == [ce.SequenceForked(first, second, "parked")]
    assert (report.pool.in_use, report.pool.shared, report.pool.table_entries) == (3, 3, 6)
    ask(engine, [7], max_tokens=1, seq_id=second)
    events = finish(engine)
    assert kinds(events, ce.BlockCopied) == [ce.BlockCopied(second, 2, 2, 3, 3, "shared")]
    assert engine.sequences[first].block_table == [0, 1, 2]
    assert engine.sequences[second].block_table == [0, 1, 3, 4]
    assert engine.blocks.pool.ref_counts[:5] == [2, 2, 1, 1, 1]
    assert engine.stats().copies == 1


def test_fork_while_generating_goes_on_generating():
    engine = make_engine()
    first = ask(engine, tokens(6), max_tokens=6)
    for _ in range(3):
        engine.step()
    second = engine.fork(first)
    events = finish(engine)
    assert engine.sequences[second].token_ids == engine.sequences[first].token_ids
    assert len(kinds(events, ce.BlockCopied)) <= 1
    assert engine.sequences[first].seed != engine.sequences[second].seed


def test_next_turn_prefills_only_what_is_new():
    engine = make_engine()
    seq = ask(engine, tokens(10), max_tokens=3)
    finish(engine)
    ask(engine, tokens(5, 300), max_tokens=1, seq_id=seq)
    report = engine.step()
    assert report.batch[0].num_prefill == 6  # the last reply token and five new ones
    assert engine.sequences[seq].num_cached_tokens == 12


def test_prefix_match_is_exact_to_the_token():
    engine = make_engine()
    ask(engine, tokens(12), max_tokens=1)
    finish(engine)
    second = ask(engine, [*tokens(10), 7, 7], max_tokens=1)
    events = finish(engine)
    assert kinds(events, ce.PrefixHit) == [ce.PrefixHit(second, [0, 1, 2], 10)]
    assert kinds(events, ce.BlockCopied) == [ce.BlockCopied(second, 2, 2, 3, 2, "shared")]
    assert engine.sequences[second].num_cached_tokens == 10
    assert (engine.stats().prefix_queries, engine.stats().prefix_hits) == (24, 10)


def test_last_prompt_token_is_always_computed():
    engine = make_engine()
    ask(engine, tokens(8), max_tokens=1)
    finish(engine)
    second = ask(engine, tokens(8), max_tokens=1)
    report = engine.step()
    assert report.batch == [BatchEntry(second, 1, 0, report.batch[0].token_ids)]
    assert engine.sequences[second].num_cached_tokens == 7


def test_a_prompt_sent_to_many_at_once_is_computed_once():
    engine = make_engine(num_blocks=40, max_num_batched_tokens=10)
    ids = [ask(engine, [*tokens(26), i], max_tokens=2) for i in range(4)]
    finish(engine)
    assert engine.stats().prefill_tokens == 27 + 3 * 3
    tables = [engine.sequences[i].block_table for i in ids]
    assert all(table[:6] == tables[0][:6] for table in tables)
    assert len({table[6] for table in tables}) == 4


def test_closed_sequences_leave_findable_blocks_behind():
    engine = make_engine()
    engine.close(ask_and_finish(engine, tokens(9)))
    stats = engine.stats()
    assert (stats.blocks_cached, stats.blocks_in_use) == (2, 0)
    again = ask_and_finish(engine, tokens(9))
    assert engine.sequences[again].num_cached_tokens == 8


def ask_and_finish(engine, prompt, max_tokens=1) -> int:
    seq_id = ask(engine, prompt, max_tokens)
    finish(engine)
    return seq_id


def test_without_prefix_caching_nothing_is_found_or_kept():
    engine = make_engine(enable_prefix_caching=False)
    engine.close(ask_and_finish(engine, tokens(9)))
    again = ask_and_finish(engine, tokens(9))
    assert engine.sequences[again].num_cached_tokens == 0
    assert (engine.stats().blocks_cached, engine.stats().prefix_queries) == (0, 0)


def test_rewind_drops_blocks_past_the_cut_and_keeps_the_old_branch_findable():
    engine = make_engine()
    seq = ask_and_finish(engine, tokens(15), max_tokens=1)
    engine.rewind(seq, 6)
    assert engine.flush().events == [ce.SequenceRewound(seq, 6), ce.BlocksFreed(seq, [3, 2])]
    ask(engine, [7], seq_id=seq)
    events = finish(engine)
    assert kinds(events, ce.BlockCopied) == [ce.BlockCopied(seq, 1, 1, 3, 2, "rewind")]
    other = ask_and_finish(engine, tokens(15))
    assert engine.sequences[other].num_cached_tokens == 12


def test_rewind_stops_a_sequence_that_is_generating():
    engine = make_engine()
    seq = ask(engine, tokens(6), max_tokens=50)
    for _ in range(4):
        engine.step()
    engine.rewind(seq, 3)
    assert not engine.has_work
    assert engine.sequences[seq].token_ids == tokens(3)


def test_extending_by_nothing_asks_for_another_reply():
    engine = make_engine()
    seq = ask_and_finish(engine, tokens(8), max_tokens=3)
    reply = engine.sequences[seq].output_token_ids
    engine.rewind(seq, 8)
    ask(engine, [], max_tokens=3, seq_id=seq)
    report = engine.step()
    assert report.batch[0].num_prefill == 1
    finish(engine)
    assert engine.sequences[seq].output_token_ids == reply


def test_decodes_come_first_and_prefill_fills_the_budget_in_chunks():
    engine = make_engine(max_num_batched_tokens=6)
    short = ask(engine, tokens(3), max_tokens=9)
    engine.step()
    long = ask(engine, tokens(12, 300), max_tokens=1)
    batches = [engine.step().batch for _ in range(3)]
    assert [(e.seq_id, e.num_prefill, e.num_decode) for e in batches[0]] == [(short, 0, 1), (long, 5, 0)]
    assert [(e.seq_id, e.num_prefill, e.num_decode) for e in batches[1]] == [(short, 0, 1), (long, 5, 0)]
    assert [(e.seq_id, e.num_prefill, e.num_decode) for e in batches[2]] == [(short, 0, 1), (long, 2, 0)]
    assert [len(batch[1].token_ids) for batch in batches] == [0, 0, 1]


def test_focused_session_goes_first():
    engine = make_engine(max_num_seqs=1)
    ask(engine, tokens(3), max_tokens=1)
    focused = engine.open(priority=1)
    ask(engine, tokens(3, 300), seq_id=focused)
    assert [entry.seq_id for entry in engine.step().batch] == [focused]


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_the_newest_running_sequence_is_preempted_and_finishes_right(mode):
    engine = make_engine(num_blocks=6, num_host_blocks=8, preemption_mode=mode)
    prompts = [tokens(8), tokens(8, 300)]
    first, second = (ask(engine, prompt, max_tokens=12) for prompt in prompts)
    events = finish(engine)
    preempted = kinds(events, ce.SequencePreempted)
    running = [event for event in preempted if event.status != "parked"]
    assert [(e.seq_id, e.mode, e.for_seq_id) for e in running] == [(second, mode, first)]
    for seq_id, prompt in zip((first, second), prompts, strict=True):
        assert engine.sequences[seq_id].output_token_ids == expected_reply(prompt, VOCAB, 12)
    stats = engine.stats()
    assert stats.preemptions == len(preempted) == 2, "the parked one gave its blocks too"
    assert (stats.swaps_out > 0) == (stats.swaps_in > 0) == (mode == "swap")


def test_parked_sequences_give_their_blocks_before_running_ones_do():
    engine = make_engine(num_blocks=6)
    oldest, newer = ask_and_finish(engine, tokens(8)), ask_and_finish(engine, tokens(8, 300))
    ask(engine, tokens(9, 500), max_tokens=1)
    events = finish(engine)
    assert [e.seq_id for e in kinds(events, ce.SequencePreempted)] == [oldest]
    assert engine.sequences[newer].block_table
    assert engine.sequences[oldest].num_computed == 0
    assert engine.stats().preemptions == 1


def test_swapped_forks_share_host_blocks_and_share_again_when_back():
    engine = make_engine(num_blocks=8, num_host_blocks=8, preemption_mode="swap")
    first = ask_and_finish(engine, tokens(12))
    second = engine.fork(first)
    blocker = ask(engine, tokens(28, 300), max_tokens=1)
    events = finish(engine)
    swaps = kinds(events, ce.SwappedOut)
    assert [(s.seq_id, s.copied) for s in swaps] == [(first, [True] * 3), (second, [False] * 3)]
    assert engine.blocks.host.pool.num_in_use == 3
    engine.close(blocker)
    for seq_id in (first, second):
        ask(engine, [7], seq_id=seq_id)
    finish(engine)
    tables = [engine.sequences[seq_id].block_table for seq_id in (first, second)]
    assert tables[0][:3] == tables[1][:3]
    assert engine.blocks.host.pool.num_in_use == 0


def test_full_host_memory_falls_back_to_recomputation():
    engine = make_engine(num_blocks=6, num_host_blocks=1, preemption_mode="swap")
    for start in (100, 300):
        ask(engine, tokens(8, start), max_tokens=12)
    preempted = kinds(finish(engine), ce.SequencePreempted)
    assert {event.mode for event in preempted} == {"recompute"}


def test_a_sequence_alone_may_fill_the_whole_pool():
    engine = make_engine(num_blocks=3)
    seq = ask(engine, tokens(11), max_tokens=None)
    finish(engine)
    assert len(engine.sequences[seq]) == 12
    assert engine.sequences[seq].finish_reason == "length"


def test_end_of_sequence_token_stops_unless_ignored():
    reply = expected_reply(tokens(5), VOCAB, 10)
    engine = make_engine(eos_token_ids=frozenset({reply[2]}))
    seq = ask(engine, tokens(5), max_tokens=10)
    finish(engine)
    assert engine.sequences[seq].output_token_ids == reply[: reply.index(reply[2]) + 1]
    assert engine.sequences[seq].finish_reason == "stop"
    other = engine.open()
    engine.extend(other, tokens(5), SamplingParams(max_tokens=10, ignore_eos=True))
    finish(engine)
    assert engine.sequences[other].output_token_ids == reply


def test_stop_keeps_tokens_and_the_next_step_leaves_it_out():
    engine = make_engine()
    stopped, other = ask(engine, tokens(5), max_tokens=50), ask(engine, tokens(5, 300), max_tokens=50)
    engine.step()
    engine.stop(stopped)
    report = engine.step()
    assert [entry.seq_id for entry in report.batch] == [other]
    assert ce.SequenceParked(stopped, "abort") in report.events
    assert len(engine.sequences[stopped]) == 6


def test_pool_of_one_block_serves():
    engine = make_engine(num_blocks=1)
    first = ask_and_finish(engine, tokens(2))
    second = ask_and_finish(engine, tokens(3, 300))
    assert engine.sequences[first].finish_reason == engine.sequences[second].finish_reason == "length"


@pytest.mark.parametrize(
    ("length", "num_blocks", "sentence"),
    [
        (0, 16, "The prompt has no tokens."),
        (20, 16, "The prompt has 20 tokens, but the model's context is 20, reply included."),
        (12, 3, "needs 4 blocks with its reply; the KV cache has 3 (12 tokens)."),
    ],
)
def test_prompts_that_cannot_be_served_are_refused_in_words(length, num_blocks, sentence):
    engine = make_engine(num_blocks=num_blocks, model_len=20)
    seq = engine.open()
    with pytest.raises(RequestError) as caught:
        engine.extend(seq, tokens(length), SamplingParams())
    assert sentence in caught.value.message
    assert caught.value.hint
    assert engine.sequences[seq].token_ids == []
    assert not engine.has_work


def test_misused_verbs_are_refused_in_words():
    engine = make_engine()
    seq = ask(engine, tokens(4), max_tokens=9)
    for call, sentence in [
        (lambda: engine.extend(seq, [1], SamplingParams()), f"Sequence {seq} is still generating."),
        (lambda: engine.extend(99, [1], SamplingParams()), "There is no sequence 99."),
        (lambda: engine.open(seq), f"There is a sequence {seq} already."),
        (lambda: engine.fork(seq, seq), f"There is a sequence {seq} already."),
        (lambda: engine.rewind(seq, 5), f"Sequence {seq} has 4 tokens and cannot be rewound to 5."),
        (lambda: engine.close(99), "There is no sequence 99."),
    ]:
        with pytest.raises(RequestError) as caught:
            call()
        assert caught.value.message == sentence


def test_seeds_are_reproducible_and_differ_between_requests():
    seeds = []
    for _ in range(2):
        engine = make_engine(seed=3)
        ids = [ask(engine, tokens(3)) for _ in range(2)]
        seeds.append([engine.sequences[i].seed for i in ids])
    assert seeds[0] == seeds[1]
    assert seeds[0][0] != seeds[0][1]
    engine = make_engine()
    seq = engine.open()
    engine.extend(seq, [1], SamplingParams(seed=42))
    assert engine.sequences[seq].seed == 42


def test_reports_count_what_happened():
    ticks = iter(range(1000))
    limits = EngineLimits(num_blocks=8, block_size=4)
    engine = EngineCore(limits, KVSimulator(8, 4, vocab=VOCAB), clock=lambda: next(ticks))
    seq = ask(engine, tokens(6), max_tokens=3)
    reports = [engine.step(), engine.step()]
    assert [r.step for r in reports] == [1, 2]
    assert reports[0].timings == ev.Timings(1, 0, 1, 0, 1)
    assert reports[1].batch[0] == BatchEntry(seq, 0, 1, reports[1].batch[0].token_ids)
    assert reports[1].queues == ev.QueueLengths(0, 1, 0, 0)
    assert reports[1].pool == ev.PoolCounts(8, 6, 0, 2, 0, 2, 0, 0)
    counters = reports[1].counters
    assert (counters.prefill_tokens, counters.decode_tokens, counters.steps) == (6, 1, 2)
    assert engine.flush() is None


@pytest.mark.parametrize("wrong", [-1, 50, 2**31, 2**63])
def test_token_that_the_model_does_not_have_changes_nothing(wrong):
    engine = make_engine(vocab_size=50)
    seq_id = ask(engine, [0, 49])
    finish(engine)
    for prompt, params in (([0, 1, wrong], SamplingParams()), ([wrong], SamplingParams())):
        with pytest.raises(RequestError, match=f"Token id {wrong} is outside the model's vocabulary of 50 tokens"):
            engine.extend(seq_id, prompt, params)
    held = list(engine.sequences[seq_id].token_ids)
    assert held[:2] == [0, 49]
    assert engine.flush() is None
    assert not engine.has_work


def test_stop_token_that_the_model_does_not_have_is_refused():
    engine = make_engine(vocab_size=50)
    seq_id = engine.open()
    with pytest.raises(RequestError, match="Stop token id 50 is outside"):
        engine.extend(seq_id, [1], SamplingParams(stop_token_ids=[50]))
    engine.extend(seq_id, [1], SamplingParams(stop_token_ids=[49]))


class Timed(KVSimulator):
    """Says how long its phases took; a clock that goes on by a hundred with every look is their measure."""

    def __init__(self, forward_seconds: float) -> None:
        super().__init__(8, 4, vocab=VOCAB)
        self.forward_seconds = forward_seconds
        self.steps: list[int] = []

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        self.steps.append(batch.step)
        token_ids = super().execute(batch).token_ids
        return ModelRunnerOutput(token_ids, 1, self.forward_seconds, 2, 4, 8)


@pytest.mark.parametrize(("measured", "told"), [(0.0, 100 - 1 - 2 - 4), (50.0, 50)])
def test_a_step_tells_what_each_phase_took_and_leaves_the_rest_to_the_forward_pass(measured, told):
    ticks, runner = iter(range(1000, 100_000, 100)), Timed(measured)
    engine = EngineCore(EngineLimits(num_blocks=8, block_size=4), runner, clock=lambda: next(ticks))
    ask(engine, tokens(3), max_tokens=9)
    reports = [engine.step() for _ in range(4)]
    expected = ev.Timings(schedule=100, copy=1, forward=told, sample=2, update=100, launch=4, attention=8)
    assert [report.timings for report in reports] == [expected] * 4
    assert [report.time for report in reports] == [500, 1000, 1500, 2000], "since the engine began"
    assert runner.steps == [report.step for report in reports] == [1, 2, 3, 4]


def test_a_step_in_which_nobody_can_run_tells_what_it_took_to_find_that_out():
    ticks = iter(range(1000, 100_000, 100))
    engine = EngineCore(EngineLimits(num_blocks=8, block_size=4), KVSimulator(8, 4), clock=lambda: next(ticks))
    engine.controls.set_limit(1)
    ask(engine, tokens(9))
    report = engine.step()
    assert (report.batch, report.timings) == ([], ev.Timings(schedule=100))


def test_a_sequence_cut_inside_its_prompt_has_no_reply_and_one_cut_to_nothing_gives_no_blocks():
    engine = make_engine(num_blocks=6)
    seq, empty = ask_and_finish(engine, tokens(6), max_tokens=3), ask_and_finish(engine, tokens(6, 300))
    engine.rewind(seq, 4)
    assert engine.sequences[seq].num_prompt_tokens == 4
    assert engine.sequences[seq].output_token_ids == []
    engine.rewind(empty, 0)
    engine.flush()
    ask(engine, tokens(22, 500))
    assert [event.seq_id for event in kinds(finish(engine), ce.SequencePreempted)] == [seq]

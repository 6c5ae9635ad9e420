"""The prefix cache's upkeep.

While a device computes prompts it is the same as it would be afterwards. The blocks that many decodes fill in the
same step become findable over a few steps, and at once when it matters.
"""

from pagedchat import cache_events as ce
from pagedchat import events as ev
from pagedchat.engine.cache_upkeep import PER_STEP
from pagedchat.engine.core import EngineCore
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.output import ModelRunnerOutput, SchedulerOutput
from tests.engine.kv_simulator import KVSimulator
from tests.engine.test_core import ask, kinds, make_engine, tokens

SIZE, NUM_BLOCKS = 4, 64
NUM_DECODES = 60


class Runner(KVSimulator):
    """Calls `meanwhile` as often as it is told, in the middle of a step."""

    def __init__(self, num_calls: int) -> None:
        super().__init__(NUM_BLOCKS, SIZE)
        self.num_calls = num_calls
        self.engine: EngineCore | None = None
        self.findable: list[int] = []
        """Blocks that can be found when a step's output is on its way."""

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        batch.step = 1  # so that the simulator does not call it
        output = super().execute(batch)
        for _ in range(self.num_calls):
            if batch.meanwhile is not None:
                batch.meanwhile()
        assert self.engine is not None
        self.findable.append(len(self.engine.blocks.cache))
        return output


def engine_with(runner: Runner, max_num_batched_tokens: int = 1024) -> EngineCore:
    limits = EngineLimits(num_blocks=NUM_BLOCKS, block_size=SIZE, max_num_batched_tokens=max_num_batched_tokens)
    ticks = iter(range(100_000))
    runner.engine = EngineCore(limits, runner, clock=lambda: next(ticks))
    return runner.engine


def reports_of(num_calls: int) -> list[tuple[object, ...]]:
    engine = engine_with(Runner(num_calls), max_num_batched_tokens=32)
    for i in range(6):
        ask(engine, [i % 2, *tokens(SIZE * 3 + i)], max_tokens=6)
    told = []
    while engine.has_work:
        report = engine.step()
        told.append((report.batch, report.events, report.pool, report.queues, report.counters))
        engine.check_integrity()
    return told


def test_reports_do_not_depend_on_when_and_how_often_it_is_done() -> None:
    assert reports_of(0) == reports_of(1) == reports_of(2)


def test_blocks_of_prompts_are_findable_before_the_step_returns() -> None:
    early, late = Runner(1), Runner(0)
    for runner in (early, late):
        engine = engine_with(runner)
        ask(engine, tokens(SIZE * 3 + 1))
        report = engine.step()
        assert len(kinds(report.events, ce.BlockCached)) == 3
    assert (early.findable, late.findable) == ([3], [0])


def test_prompts_that_wait_are_hashed_as_far_as_the_batch_is_long() -> None:
    engine = engine_with(Runner(1), max_num_batched_tokens=2 * SIZE)
    prompts = [tokens(2 * SIZE, start=100 * i) for i in range(4)]
    _, *others = [engine.sequences[ask(engine, prompt)] for prompt in prompts]
    engine.step()
    assert [len(seq.token_hashes) for seq in others] == [2, 0, 0]


def test_hashing_goes_on_while_a_single_token_is_left() -> None:
    engine = engine_with(Runner(1), max_num_batched_tokens=2 * SIZE + 1)
    prompts = [tokens(2 * SIZE + (i == 0), start=100 * i) for i in range(4)]
    _, *others = [engine.sequences[ask(engine, prompt)] for prompt in prompts]
    engine.step()
    assert [len(seq.token_hashes) for seq in others] == [2, 2, 0]


def test_a_prompt_of_two_tokens_leaves_its_block_findable() -> None:
    engine = make_engine(block_size=2)
    ask(engine, tokens(2), max_tokens=9)
    assert len(kinds(engine.step().events, ce.BlockCached)) == 1


def test_without_a_prefix_cache_nothing_is_hashed() -> None:
    limits = EngineLimits(
        num_blocks=NUM_BLOCKS, block_size=SIZE, max_num_batched_tokens=2 * SIZE, enable_prefix_caching=False
    )
    engine = EngineCore(limits, KVSimulator(NUM_BLOCKS, SIZE))
    asked = [ask(engine, tokens(2 * SIZE, start=100 * i)) for i in range(3)]
    while engine.has_work:
        engine.step()
    assert [engine.sequences[seq_id].token_hashes for seq_id in asked] == [[], [], []]


def test_its_time_counts_as_that_of_the_update() -> None:
    for num_calls in (0, 1):
        engine = engine_with(Runner(num_calls))
        ask(engine, tokens(SIZE * 3))
        forward = 1 + num_calls  # the clock goes on by one whenever somebody looks at it
        assert engine.step().timings == ev.Timings(1, 0, forward, 0, 1 + num_calls)


# --- decodes that fill blocks together ----------------------------------------------------------------


def engine_about_to_fill() -> EngineCore:
    """Sequences with nothing in common, all of whose next token fills a block."""
    engine = make_engine(num_blocks=8 * NUM_DECODES, max_num_batched_tokens=1024, block_size=SIZE)
    for i in range(NUM_DECODES):
        ask(engine, [i, *tokens(SIZE - 2)], max_tokens=12)
    engine.step()
    return engine


def test_they_become_findable_over_several_steps() -> None:
    engine = engine_about_to_fill()
    cached = [len(kinds(engine.step().events, ce.BlockCached)) for _ in range(SIZE)]
    assert cached == [20, 13, 9, 6]  # a third of those that wait, before the next blocks are full
    engine.check_integrity()


def test_of_a_usual_block_they_become_findable_a_few_at_a_time() -> None:
    engine = make_engine(num_blocks=8 * NUM_DECODES, max_num_batched_tokens=1024, block_size=16)
    for i in range(NUM_DECODES):
        ask(engine, [i, *tokens(14)], max_tokens=18)
    engine.step()
    cached = [len(kinds(engine.step().events, ce.BlockCached)) for _ in range(15)]
    assert cached == [5, *[PER_STEP] * 13, 3]
    engine.check_integrity()


def test_whoever_asks_for_a_sequence_finds_all_of_them() -> None:
    engine = engine_about_to_fill()
    engine.step()
    newcomer = ask(engine, engine.sequences[NUM_DECODES].token_ids[: SIZE + 1], seq_id=engine.open())
    report = engine.step()
    assert len(kinds(report.events, ce.BlockCached)) >= NUM_DECODES - 20
    [hit] = kinds(report.events, ce.PrefixHit)
    assert (hit.seq_id, hit.num_tokens) == (newcomer, SIZE)


def test_a_sequence_that_ends_leaves_its_full_blocks_findable() -> None:
    engine = make_engine(num_blocks=8 * NUM_DECODES, max_num_batched_tokens=1024, block_size=SIZE)
    for i in range(NUM_DECODES):
        ask(engine, [i, *tokens(SIZE - 2)], max_tokens=2)
    events = [event for _ in range(2) for event in engine.step().events]
    assert not engine.has_work
    assert len(kinds(events, ce.BlockCached)) == NUM_DECODES

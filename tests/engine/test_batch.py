"""Sequences that decode together: known as such, ended as any others, and forgotten when something else happens."""

import pytest

from pagedchat.engine import scheduler
from pagedchat.engine.batch import Lockstep, commit
from pagedchat.engine.core import EngineCore
from pagedchat.engine.output import DecodeRun, ModelRunnerOutput, ScheduledSequence, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.step_batch import BatchEntry
from tests.engine.kv_simulator import KVSimulator, next_token
from tests.engine.run_checker import RunChecker
from tests.engine.test_core import VOCAB, ask, make_engine, tokens


def watched(num_seqs: int = 3, max_tokens: int = 60, **limits) -> tuple[EngineCore, RunChecker]:
    engine = make_engine(num_blocks=400, **limits)
    engine.runner = checker = RunChecker(engine.runner)
    for i in range(num_seqs):
        ask(engine, [i, *tokens(5 + i)], max_tokens=max_tokens)
    return engine, checker


def runs(engine: EngineCore, checker: RunChecker, num_steps: int) -> list[DecodeRun | None]:
    found = []
    for _ in range(num_steps):
        engine.step()
        found.append(checker.run)
    return found


@pytest.mark.parametrize(("num_seqs", "reserve_ahead"), [(1, False), (3, False), (3, True)])
def test_a_run_goes_on_for_as_long_as_nothing_else_happens(num_seqs: int, reserve_ahead: bool) -> None:
    engine, checker = watched(num_seqs, reserve_ahead=reserve_ahead)
    first, second, *rest = runs(engine, checker, 40)
    assert first is second is None  # the prompts, and the first decode of each
    assert rest[0] is not None
    assert all(run is rest[0] for run in rest)


def test_a_run_ends_when_somebody_comes_or_goes_or_is_moved() -> None:
    engine, checker = watched()
    for disturb in (
        lambda: ask(engine, tokens(9, 800), max_tokens=99),
        lambda: engine.fork(1),
        lambda: engine.stop(2),
        lambda: engine.rewind(3, 4),
        lambda: engine.set_priority(1, 1),
    ):
        before = runs(engine, checker, 5)[-1]
        assert before is not None
        disturb()
        after = runs(engine, checker, 5)
        assert after[0] is None
        assert after[-1] is not None
        assert after[-1] is not before


def test_what_happens_is_the_same_as_without_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    replies, told = [], []
    for knows_runs in (True, False):
        if not knows_runs:
            monkeypatch.setattr(scheduler, "in_lockstep", lambda *_: False)
        engine = make_engine(num_blocks=60, reserve_ahead=True, eos_token_ids=frozenset({7}))
        for i in range(8):
            params = SamplingParams(max_tokens=20 + i, ignore_eos=i % 2 == 0, stop_token_ids=[3] if i > 5 else [])
            engine.extend(engine.open(), [i, *tokens(3 + 2 * i)], params)
        reports = [engine.step() for _ in range(40) if engine.has_work]
        assert not engine.has_work
        told.append([(report.batch, report.events, report.queues, report.counters) for report in reports])
        replies.append([(seq.token_ids, seq.finish_reason) for seq in engine.sequences.values()])
    assert replies[0] == replies[1]
    assert told[0] == told[1]
    assert {reason for _, reason in replies[0]} == {"stop", "length"}


def test_a_step_that_failed_is_asked_for_again() -> None:
    engine, checker = watched()
    expected, _ = watched()
    runs(engine, checker, 10)

    class Failing:
        def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
            starts.append([part.start for part in batch.scheduled])
            raise RuntimeError("out of memory")

        def check(self) -> None:
            """It does not know better."""

    starts: list[list[int]] = []
    engine.runner = Failing()
    for _ in range(2):
        with pytest.raises(RuntimeError):
            engine.step()
    half = len(starts) // 2
    assert starts[:half] == starts[half:]
    engine.runner = checker.runner
    while engine.has_work:
        engine.step()
    while expected.has_work:
        expected.step()
    assert [seq.token_ids for seq in engine.sequences.values()] == [
        seq.token_ids for seq in expected.sequences.values()
    ]


def test_pieces_of_a_prompt_of_one_token_are_no_run() -> None:
    engine, checker = watched(num_seqs=1, max_num_batched_tokens=1)
    assert runs(engine, checker, 7)[:-1] == [None] * 6


def test_a_runner_that_gives_no_token_or_two_is_refused() -> None:
    engine, checker = watched()
    runs(engine, checker, 5)

    class Generous(KVSimulator):
        def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
            return ModelRunnerOutput([[next_token(1, VOCAB)] * 2 for _ in batch.scheduled])

    engine.runner = Generous(1, 4)
    with pytest.raises(ValueError, match="too many values"):
        engine.step()


# --- what a batch did to its sequences --------------------------------------------------------------


def decoding(seq_id: int, num_computed: int, stop: frozenset[int] = frozenset(), left: int = 9) -> Sequence:
    """A sequence of which all but the last token is computed."""
    seq = Sequence(seq_id)
    seq.token_ids, seq.num_computed, seq.num_prompt_tokens = tokens(num_computed + 1), num_computed, 2
    seq.stop_token_ids, seq.stop_length = stop, num_computed + 1 + left
    return seq


def test_of_single_tokens_those_that_fill_a_block_are_named() -> None:
    fills, does_not, chunk = decoding(1, 7), decoding(2, 6), decoding(3, 0)
    chunk.token_ids, chunk.num_prompt_tokens = tokens(9), 9
    batch = [ScheduledSequence(fills, 7, 1, True), ScheduledSequence(does_not, 6, 1, True)]
    outcome = commit([*batch, ScheduledSequence(chunk, 0, 8, False)], [[1], [2], []], 4)
    assert outcome.filled == [fills]
    assert (outcome.num_prefill, outcome.num_decode, outcome.finished) == (8, 2, [])
    assert outcome.entries == [BatchEntry(1, 0, 1, [1]), BatchEntry(2, 0, 1, [2]), BatchEntry(3, 8, 0, [])]
    assert [seq.num_computed for seq in (fills, does_not, chunk)] == [8, 7, 8]


def test_in_lockstep_they_end_one_by_one_at_their_lengths_and_stop_tokens() -> None:
    sequences = [decoding(1, 4, left=2), decoding(2, 5, stop=frozenset({7})), decoding(3, 6, left=4)]
    lockstep, ended = Lockstep(sequences), []
    for token_ids in ([1, 1, 7], [1, 1, 1], [1, 7, 1], [1, 1, 1]):
        outcome = lockstep.commit([[token] for token in token_ids], 4)
        ended.append([(seq.seq_id, reason) for seq, reason in outcome.finished])
    assert ended[:3] == [[], [(1, "length")], [(1, "length"), (2, "stop")]]
    assert (3, "length") in ended[3]


def test_a_runner_that_leaves_somebody_out_is_refused() -> None:
    pair = [decoding(1, 4), decoding(2, 5)]
    with pytest.raises(ValueError, match="shorter"):
        commit([ScheduledSequence(seq, seq.num_computed, 1, True) for seq in pair], [[1]], 4)
    with pytest.raises(ValueError, match="shorter"):
        Lockstep(pair).commit([[1]], 4)

"""What the screens read of the engine, folded from the reports of the real scheduler."""

import msgspec
import pytest

from pagedchat.cache_events import BlockAllocated, SequenceOpened
from pagedchat.engine.core import EngineCore
from pagedchat.events import (
    Counters,
    EngineDied,
    EngineFailed,
    EngineNotice,
    LoadProgress,
    PoolCounts,
    QueueLengths,
    RunState,
    StepReport,
    Steps,
    TextDelta,
    Timings,
)
from pagedchat.step_batch import BatchEntry
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.narrator import MAX_LINES
from pagedchat.view.state.engine import MAX_REPORTS
from tests.scripted_reports import ScriptedEngine, story
from tests.service.fake_engine import ready_info


def marks(view: EngineView, seq_id: int) -> str:
    return "".join("║" if c.paused else c.marks.get(seq_id, " ") for c in view.columns.columns)


def bare_report(step: int, time: float, batch: list[BatchEntry], running: int = 1) -> StepReport:
    pool = PoolCounts(4, 4, 0, 0, 0, 0, 0, 0)
    return StepReport(
        step, time, batch, [], pool, QueueLengths(0, running, 0, 0), Timings(forward=0.1), Counters(steps=step)
    )


def give_blocks(view: EngineView, seq_id: int, num_blocks: int) -> None:
    """The mirror knows the sequence and blocks for its tokens; the view has told nothing of it."""
    mirror = view.mirror
    assert mirror is not None
    events = [SequenceOpened(seq_id), *[BlockAllocated(seq_id, block) for block in mirror.next_out(num_blocks)]]
    mirror.apply(msgspec.structs.replace(bare_report(0, 0.0, []), events=events))


def test_everything_is_empty_before_the_engine_is_ready() -> None:
    view = EngineView()
    assert (view.info, view.mirror, view.step, view.last_batch, view.tokens_per_second) == (None, None, 0, 0, 0.0)
    assert view.recent_events(5) == []
    assert view.blocks_of(1) == (0, 0)
    assert view.shared_with(1) == {}
    assert view.sequence_rate(1) == 0.0


def test_loading_and_failure_are_kept_until_the_engine_is_ready() -> None:
    view = EngineView()
    progress = LoadProgress("weights", "reading", 1, 4, "tensors")
    view.apply(progress)
    assert view.loading is progress
    failed = EngineFailed("No such model.", "Check the name.")
    view.apply(failed)
    assert (view.loading, view.failure) == (None, failed)
    engine = ScriptedEngine(view, num_blocks=4)
    assert view.failure is None
    assert view.info is not None
    assert view.info.num_blocks == engine.core.limits.num_blocks == 4


def test_steps_before_ready_and_events_of_requests_change_nothing() -> None:
    view = EngineView()
    view.apply(Steps([bare_report(1, 1.0, [])]))
    view.apply(TextDelta(1, 1, "hello", 1))
    assert view.step == 0


def test_a_dead_engine_leaves_nothing_but_the_labels() -> None:
    view = story().view
    view.apply(RunState(paused=True))
    view.apply(EngineDied(-9, "", restarting=True))
    assert (view.mirror, view.info, view.paused, view.step, view.num_lines) == (None, None, False, 0, 0)
    assert view.labels[1] == "1 tale"


def test_step_batch_and_own_and_shared_blocks() -> None:
    view = story().view
    assert view.step == 30
    assert view.last_batch == 3
    assert view.blocks_of(1) == (1, 24)
    assert view.shared_with(1) == {2: 24}
    assert view.shared_with(3) == {}


def test_last_batch_is_zero_when_nobody_wants_a_token() -> None:
    engine = ScriptedEngine(num_blocks=8)
    engine.ask(1, 5, max_tokens=2)
    engine.run()
    assert (engine.view.last_batch, engine.view.busy) == (1, True)
    engine.run()
    assert (engine.view.last_batch, engine.view.busy, engine.view.tokens_per_second) == (0, False, 0.0)


def test_recent_events_gives_the_last_ones_oldest_first() -> None:
    view = story().view
    assert view.recent_events(3) == list(view.lines)[-3:]
    assert view.recent_events(0) == []
    assert len(view.recent_events(10**6)) == view.num_lines


def test_timeline_marks_of_prefill_decode_and_fork() -> None:
    view = story().view
    assert marks(view, 1) == "PPp" + "•" * 27
    assert marks(view, 2) == " " * 17 + "f" + "•" * 12
    assert marks(view, 3) == " " * 12 + "p" + "•" * 7 + " " * 10


def test_timeline_marks_of_preemption_and_waiting_by_swap() -> None:
    engine = ScriptedEngine(
        num_blocks=6, block_size=4, num_host_blocks=8, preemption_mode="swap", max_num_batched_tokens=16
    )
    engine.ask(1, 9, max_tokens=9)
    engine.ask(2, 7, max_tokens=9)
    engine.run(14)
    assert marks(engine.view, 1) == "p••••••••▼    "  # parked by then, its blocks make room for the other
    assert marks(engine.view, 2) == "p•••▼ssss•••••"


def test_recomputed_tokens_are_told_from_new_ones() -> None:
    engine = ScriptedEngine(num_blocks=6, block_size=4, enable_prefix_caching=False, max_num_batched_tokens=16)
    engine.ask(1, 9, max_tokens=9)
    engine.ask(2, 7, max_tokens=9)
    engine.run(14)
    row = marks(engine.view, 2)
    assert row.startswith("p")
    assert "▼" in row
    assert "r" in row[row.index("▼") :]
    assert "p" not in row[1:]


def test_a_pause_is_one_column_however_often_it_is_told() -> None:
    engine = ScriptedEngine(num_blocks=8)
    engine.ask(1, 5)
    engine.run(2)
    for paused in (True, True, False, True):
        engine.view.apply(RunState(paused=paused))
    assert engine.view.paused
    assert engine.view.tokens_per_second == 0.0
    engine.run()
    assert marks(engine.view, 1) == "p•║•"


def test_rates_count_generated_tokens_of_the_last_two_seconds() -> None:
    engine = ScriptedEngine(num_blocks=64)
    engine.ask(1, 5)
    engine.run(100)
    assert engine.view.tokens_per_second == pytest.approx(20, rel=0.05)
    engine.ask(2, 5)
    engine.run(20)
    assert engine.view.sequence_rate(1) == pytest.approx(20, rel=0.05)
    assert engine.view.sequence_rate(2) == pytest.approx(20, rel=0.05)
    assert engine.view.tokens_per_second == pytest.approx(30, rel=0.05)


def test_rates_forget_what_is_older_than_the_window() -> None:
    view = ScriptedEngine(num_blocks=8).view
    give_blocks(view, 1, 1)
    give_blocks(view, 2, 7)
    prefill = BatchEntry(2, 8, 0, [])
    view.apply(Steps([bare_report(1, 1.0, [BatchEntry(1, 0, 1, [7]), prefill])]))
    view.apply(Steps([bare_report(2, 9.0, [prefill])]))
    assert view.tokens_per_second == 0.0
    view.apply(Steps([bare_report(3, 9.1, [BatchEntry(2, 8, 0, [7])])]))
    assert view.tokens_per_second == pytest.approx(1 / 0.2)


def test_history_and_lines_are_bounded() -> None:
    view = ScriptedEngine(num_blocks=2000).view
    give_blocks(view, 1, 2000)
    reports = [bare_report(step, step * 0.01, [BatchEntry(1, 0, 1, [7])]) for step in range(1, 6002)]
    view.apply(Steps(reports))
    assert (len(view.history), len(view.lines), view.num_lines) == (MAX_REPORTS, MAX_LINES, 6001)
    assert view.step == 6001


def test_the_mirror_in_the_view_is_the_engine() -> None:
    engine = story()
    core: EngineCore = engine.core
    mirror = engine.view.mirror
    assert mirror is not None
    assert mirror.ref_counts == core.blocks.pool.ref_counts
    assert {s.seq_id: s.block_table for s in mirror.sequences.values()} == {
        s.seq_id: s.block_table for s in core.sequences.values()
    }


def test_notices_outlive_the_engine_that_gave_them():
    view = EngineView()
    for event in (EngineNotice("one"), ready_info(), EngineNotice("two"), EngineDied(-9, "", True)):
        view.apply(event)
    assert ([notice.message for notice in view.notices], view.num_notices) == (["one", "two"], 2)

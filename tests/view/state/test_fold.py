"""One fold: who listens sees every event with the mirror that it met, and nobody reads a report twice."""

import random

from pagedchat.cache_events import BlockCopied, CacheEvent, SequenceForked
from pagedchat.engine import keyframe
from pagedchat.engine.mirror import CacheMirror
from pagedchat.events import StepReport
from pagedchat.view.state.engine import NO_ENGINE, EngineState
from pagedchat.view.state.fold import Fold, Hears
from tests.scripted_reports import ScriptedEngine, pressed, random_workload, story


class Witness:
    """Writes down what it is told, and the ref counts at that moment."""

    def __init__(self, mirror: CacheMirror) -> None:
        self.mirror = mirror
        self.heard: list[tuple[CacheEvent, list[int]]] = []
        self.taken: list[tuple[StepReport, int]] = []

    def hears(self) -> Hears:
        return {SequenceForked: self._hear, BlockCopied: self._hear}

    def take(self, report: StepReport) -> None:
        self.taken.append((report, self.mirror.num_reports))

    def _hear(self, event: CacheEvent) -> None:
        self.heard.append((event, list(self.mirror.ref_counts)))


def test_a_listener_hears_what_it_asked_for_before_the_mirror_changes() -> None:
    engine = story()
    mirror = CacheMirror(256, 16, 16)
    first, second = Witness(mirror), Witness(mirror)
    fold = Fold(mirror, [first, second])
    for report in engine.reports:
        fold(report)
    (forked, at_fork), (copied, at_copy) = first.heard
    assert isinstance(forked, SequenceForked)
    assert isinstance(copied, BlockCopied)
    assert (at_fork[copied.src], at_copy[copied.src], mirror.ref_counts[copied.src]) == (1, 2, 1)
    assert first.taken == [(report, number) for number, report in enumerate(engine.reports, 1)]
    assert (second.heard, second.taken) == (first.heard, first.taken)


def test_a_state_folds_its_mirror_exactly_as_the_mirror_alone_would_be() -> None:
    engine = ScriptedEngine(num_blocks=16, block_size=4, num_host_blocks=8, max_num_batched_tokens=12)
    mirror = CacheMirror(16, 4, 8)
    for _ in random_workload(engine, random.Random(2), 300):
        for report in engine.reports[mirror.num_reports :]:
            mirror.apply(report)
        assert engine.view.mirror == mirror


def test_a_copy_goes_on_by_itself_and_tells_the_same() -> None:
    engine = pressed()
    state = engine.view.live
    assert state is not None
    twin, before = state.copy(), known(state)
    for _ in random_workload(engine, random.Random(4), 100):
        pass
    assert known(twin) == before
    for report in engine.reports[twin.mirror.num_reports :]:
        twin.fold(report)
    assert known(twin) == known(state) != before


def known(state: EngineState) -> tuple[object, ...]:
    """All that a state tells, by value."""
    return (
        keyframe.encode(state.mirror), list(state.lines), state.num_lines, list(map(repr, state.columns.columns)),
        state.fresh_copies(), [state.num_copied(seq_id) for seq_id in range(10)], state.regrouped_at,
        state.tokens_per_second, [state.sequence_rate(seq_id) for seq_id in range(10)], list(state.history),
    )  # fmt: skip


# --- listeners ----------------------------------------------------------------------------------------


def test_copies_on_write_are_counted_for_whom_they_were_made_until_it_is_gone() -> None:
    engine = story()
    view = engine.view
    assert [view.shown.num_copied(seq_id) for seq_id in (1, 2)] == [1, 0]
    assert view.fresh_copies() == {32}
    engine.core.close(1)
    engine.flush()
    assert (view.shown.num_copied(1), view.fresh_copies()) == (0, set())


def test_decoding_into_a_block_of_ones_own_regroups_nothing() -> None:
    engine = ScriptedEngine(num_blocks=8, block_size=16)
    engine.ask(1, 5)
    engine.run()
    view = engine.view
    before = view.shown.regrouped_at
    assert before == 1
    engine.run(5)
    assert view.shown.regrouped_at == before
    engine.core.fork(1, 2)
    engine.flush()
    assert view.shown.regrouped_at == 7


# --- no engine ----------------------------------------------------------------------------------------


def test_no_engine_is_an_empty_state() -> None:
    assert (NO_ENGINE.step, NO_ENGINE.busy, NO_ENGINE.last_batch, NO_ENGINE.tokens_per_second) == (0, False, 0, 0.0)
    assert (NO_ENGINE.pool.total, NO_ENGINE.num_lines, len(NO_ENGINE.history)) == (0, 0, 0)
    assert (NO_ENGINE.blocks_of(1), NO_ENGINE.shared_with(1), NO_ENGINE.fresh_copies()) == ((0, 0), {}, set())
    assert NO_ENGINE.num_copied(1) == NO_ENGINE.regrouped_at == 0

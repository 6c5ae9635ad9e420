"""The invariant light: green while what is drawn is what the engine counts."""

import random

import msgspec
import pytest

from pagedchat.cache_events import BlockAllocated, SequenceOpened
from pagedchat.events import IntegrityBroken, RunState, Steps
from pagedchat.tui.chat.engine_status import engine_status
from pagedchat.tui.chat.header import header_line
from pagedchat.tui.kit.lines import content_to_ascii
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.engine_words import EngineNews
from pagedchat.view.state.invariant import counts_agree, picture_holds
from tests.fakes_tui import READY, report
from tests.scripted_reports import ScriptedEngine, pressed, random_workload

WIDE = 200


@pytest.fixture
def view():
    view = EngineView()
    view.apply(READY)
    return view


def broken_report():
    """Two blocks are allocated, three are counted."""
    return report(1, [SequenceOpened(1), BlockAllocated(1, 0), BlockAllocated(1, 1)], in_use=3)


@pytest.mark.parametrize("seed", range(3))
def test_counts_agree_after_every_move_of_random_work(seed):
    engine = ScriptedEngine(num_blocks=16, num_host_blocks=8, block_size=4, max_num_batched_tokens=8)
    num_reports = 0
    for _ in random_workload(engine, random.Random(seed), 150):
        if engine.reports:
            assert counts_agree(engine.view.mirror, engine.reports[-1])
        num_reports = len(engine.reports)
    assert num_reports > 50


@pytest.mark.parametrize("field", ["free", "cached", "withheld", "pinned", "table_entries", "in_use"])
def test_every_count_matters(field):
    engine = pressed()
    last = engine.reports[-1]
    wrong = msgspec.structs.replace(last.pool, **{field: getattr(last.pool, field) + 1})
    assert counts_agree(engine.view.mirror, last)
    assert not counts_agree(engine.view.mirror, msgspec.structs.replace(last, pool=wrong))


def test_the_light_turns_red_when_the_counts_differ(view):
    assert header_line(view, "", WIDE).plain.endswith("► √")
    view.apply(broken_report())
    assert not picture_holds(view)
    assert header_line(view, "", WIDE).plain.endswith("► ‼")
    status = engine_status(view, None, 0.0, WIDE)
    assert (status.look, "does not agree" in status.content.plain) == ("broken", True)


def test_a_broken_engine_is_told_with_its_dump_once(view):
    news = EngineNews(view)
    assert news.take() == []
    view.apply(IntegrityBroken(12, "block 3 has ref count 2, but 1 owner", "/tmp/dump\x1b[2J.json"))
    (told,) = news.take()
    assert told.bad
    assert told.text == (
        "The engine's books disagree since step 12: block 3 has ref count 2, but 1 owner. "
        "All that is known is in /tmp/dump.json."
    )
    assert news.take() == []
    assert header_line(view, "", WIDE).plain.endswith("‼")
    status = engine_status(view, None, 0.0, WIDE)
    assert (
        "step 12 · block 3 has ref count 2, but 1 owner · all that is known: /tmp/dump.json" in status.content.plain
    )


def test_slow_motion_and_limit_are_shown(view):
    view.apply(RunState(False, 0.5, 120))
    assert header_line(view, "", WIDE).plain.endswith("limit 120  ► 2/s √")
    view.apply(RunState(True, 0.5, 120))
    assert "║ paused √" in header_line(view, "", WIDE).plain


def test_in_ascii_the_header_keeps_its_width(view):
    view.apply(RunState(True, 0.5, 120))
    line = header_line(view, "", WIDE)
    drawn = content_to_ascii(line)
    assert drawn.plain.isascii()
    assert (len(drawn.plain), drawn.spans) == (len(line.plain), line.spans)
    assert drawn.plain.endswith("limit 120  | paused +")


def test_the_past_is_told_from_the_present():
    engine = pressed()
    engine.view.show_past(_state_at(engine, 3))
    assert "◄ step 3 of 16" in header_line(engine.view, "", WIDE).plain


def _state_at(engine, num_steps):
    past = EngineView()
    past.apply(engine.view.info)
    past.apply(Steps(engine.reports[:num_steps]))
    return past.live

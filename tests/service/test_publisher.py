"""What goes out when, in which order."""

import pytest

from pagedchat import events as ev
from pagedchat.service.publisher import _PIECE, INTERVAL, Publisher
from tests.fakes import FakeClock
from tests.service.test_wire import REPORT


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(100.0)


@pytest.fixture
def sent() -> list[ev.EngineEvent]:
    return []


@pytest.fixture
def publisher(clock, sent) -> Publisher:
    return Publisher(sent.append, clock)


def test_reports_and_texts_are_joined(publisher, sent):
    publisher.add_report(REPORT)
    publisher.add_text(ev.TextDelta(1, 10, "a", 1))
    publisher.add_text(ev.TextDelta(2, 20, "x", 1))
    publisher.add_report(REPORT)
    publisher.add_text(ev.TextDelta(1, 10, "b", 2))
    assert sent == []
    publisher.flush()
    assert sent == [ev.Steps([REPORT, REPORT]), ev.TextDelta(1, 10, "ab", 2), ev.TextDelta(2, 20, "x", 1)]


def test_urgent_event_comes_after_what_was_before_it(publisher, sent):
    publisher.add_text(ev.TextDelta(1, 10, "a", 1))
    publisher.send_now(ev.RunState(True))
    assert sent == [ev.TextDelta(1, 10, "a", 1), ev.RunState(True)]


def test_publishing_is_due_at_the_rate_of_a_screen(publisher, sent, clock):
    publisher.flush()
    publisher.add_report(REPORT)
    clock.advance(INTERVAL * 0.9)
    assert not publisher.is_due
    clock.advance(INTERVAL * 0.2)
    assert publisher.is_due
    publisher.flush()
    assert sent == [ev.Steps([REPORT])]
    assert not publisher.is_due


def test_progress_is_thinned_but_never_at_its_ends(publisher, sent, clock):
    for done in range(1001):
        clock.advance(INTERVAL / 100)
        publisher.add_progress(ev.LoadProgress("weights", "reading", done, 1000, "tensors"))
    publisher.add_progress(ev.LoadProgress("warmup", "warming up"))
    assert 8 < len(sent) < 14
    assert (sent[0].done, sent[-2].done, sent[-1].stage) == (0, 1000, "warmup")


def test_steps_that_nobody_follows_are_not_told(sent, clock):
    publisher = Publisher(sent.append, clock, tells_steps=False)
    publisher.add_report(REPORT)
    publisher.add_token_texts(lambda: ev.TokenTexts([1], [b"a"]))
    publisher.add_text(ev.TextDelta(1, 10, "a", 1))
    publisher.flush()
    assert sent == [ev.TextDelta(1, 10, "a", 1)]


def test_steps_are_written_down_in_pieces_and_go_out_when_they_are_due(clock):
    written, pushed = [], []
    publisher = Publisher(written.append, clock, pushed.append)
    few = (_PIECE - 1) // (1 + REPORT.queues.running + len(REPORT.events))
    for _ in range(few):
        publisher.add_report(REPORT)
        publisher.write_piece()
    publisher.add_text(ev.TextDelta(1, 10, "a", 1))
    publisher.add_token_texts(lambda: ev.TokenTexts([1], [b"a"]))
    assert written == []
    publisher.add_report(REPORT)
    publisher.write_piece()
    assert written == [ev.TokenTexts([1], [b"a"]), ev.Steps([REPORT] * (few + 1))]
    publisher.add_report(REPORT)
    publisher.write_piece()
    assert pushed == []
    publisher.flush()
    assert written[2:] == [ev.Steps([REPORT]), ev.TextDelta(1, 10, "a", 1)]
    assert pushed == [False]


def test_what_tokens_stand_for_is_asked_for_when_it_is_told_before_the_steps(publisher, sent):
    asked = []

    def texts(token_id):
        asked.append(token_id)
        return ev.TokenTexts([token_id], [b"a"])

    publisher.add_report(REPORT)
    publisher.add_token_texts(lambda: texts(1))
    publisher.add_token_texts(lambda: texts(2))
    assert asked == []
    publisher.flush()
    assert asked == [1, 2]
    assert sent == [ev.TokenTexts([1, 2], [b"a", b"a"]), ev.Steps([REPORT])]

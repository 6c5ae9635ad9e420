"""A screen that does not read is not waited for, hears everything in order, and is waited for in the end."""

import socket
import threading
from collections.abc import Iterator

import pytest

from pagedchat import events as ev
from pagedchat.service.outbox import Outbox
from pagedchat.service.wire import FrameReader, event_reader

LONG = "x" * 100_000


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(20)
        yield ours, theirs


def read(connection: socket.socket, reader: FrameReader[ev.EngineEvent], count: int) -> list[ev.EngineEvent]:
    events: list[ev.EngineEvent] = []
    while len(events) < count:
        events += reader.feed(connection.recv(1 << 16))
    return events


def test_what_is_said_goes_with_the_next_push(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    outbox = Outbox(ours)
    said = [ev.RunState(True), ev.TextDelta(1, 2, "é", 3)]
    for event in said:
        outbox.add(event)
    assert outbox.num_unsent > 0
    outbox.push(wait=False)
    assert outbox.num_unsent == 0
    assert read(theirs, event_reader(), 2) == said


def test_a_screen_that_does_not_read_is_not_waited_for_and_hears_all_of_it_later(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    outbox, reader = Outbox(ours), event_reader()
    said: list[ev.EngineEvent] = [ev.TextDelta(1, number, LONG, 3) for number in range(20)]
    for event in said:
        outbox.add(event)
        outbox.push(wait=False)  # returns, whatever is left
    assert outbox.num_unsent > 1_000_000
    heard: list[ev.EngineEvent] = []
    while len(heard) < len(said):
        heard += read(theirs, reader, 1)
        outbox.push(wait=False)
    assert heard == said
    assert outbox.num_unsent == 0


@pytest.mark.parametrize(("wait", "max_behind"), [(True, 1 << 30), (False, 300_000)])
def test_it_is_waited_for_where_there_is_time_or_too_much_is_left(
    ends: tuple[socket.socket, socket.socket], wait: bool, max_behind: int
) -> None:
    ours, theirs = ends
    outbox = Outbox(ours, max_behind)
    heard: list[ev.EngineEvent] = []
    listener = threading.Thread(target=lambda: heard.extend(read(theirs, event_reader(), 20)))
    for number in range(20):
        outbox.add(ev.TextDelta(1, number, LONG, 3))
    listener.start()
    outbox.push(wait)
    assert outbox.num_unsent <= (0 if wait else max_behind)
    outbox.push(wait=True)
    listener.join(20)
    assert len(heard) == 20


def test_nobody_listens_any_more(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    outbox = Outbox(ours)
    theirs.close()
    outbox.add(ev.RunState(True))
    with pytest.raises(BrokenPipeError):
        outbox.push(wait=False)

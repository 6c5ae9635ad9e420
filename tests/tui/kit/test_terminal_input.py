"""What a terminal sends: keys are keys, and a paste is one piece of text whatever is in it and however it comes."""

import os
import threading
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events

from pagedchat.tui.kit.terminal_input import TerminalInput, read_terminal

HOSTILE = "a\x1b[31mred\x1b[0m\r\nthen \x11 \x04 \x07\x1b[A\x1b\r\x1b[200~ \x1b]0;t\x07 é日\x7f"


def heard(*pieces):
    """Keys by name, pastes as they are."""
    terminal = TerminalInput()
    messages = [message for piece in pieces for message in terminal.feed(piece)]
    return [("paste", one.text) if isinstance(one, events.Paste) else one.key for one in messages]


def test_nothing_in_a_paste_is_a_key():
    assert heard(f"x\x1b[200~{HOSTILE}\x1b[201~y") == ["x", ("paste", HOSTILE), "y"]


@given(st.lists(st.integers(0, 80), max_size=8))
def test_it_may_come_in_any_pieces(cuts):
    sent = f"x\x1b[A\x1b[200~{HOSTILE}\x1b[201~y\x1b[200~\x1b[201~\r"
    places = [0, *sorted({min(cut, len(sent)) for cut in cuts}), len(sent)]
    pieces = [sent[start:end] for start, end in pairwise(places)]
    assert heard(*pieces) == ["x", "up", ("paste", HOSTILE), "y", ("paste", ""), "enter"]


def test_byte_by_byte():
    assert heard(*f"\x1b[200~{HOSTILE}\x1b[201~") == [("paste", HOSTILE)]


@pytest.mark.parametrize("sent", [b"\xff\xfe", b"a\xc3", b"\x1b[200~\xff\xfe\x1b[201~"])
def test_bytes_that_are_no_text_end_nothing(sent):
    reader, writer = os.pipe()
    ends, found = threading.Event(), []

    def hear(message):
        found.append(message)
        if getattr(message, "key", "") == "q":
            ends.set()

    os.write(writer, sent + b"q")
    thread = threading.Thread(
        target=read_terminal, args=(reader, ends, hear, "typed"), kwargs={"debug": False}, daemon=True
    )
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert [message.key for message in found[:5]] == [*"typed"]
    os.close(reader)
    os.close(writer)


def test_the_end_of_what_can_be_read_ends_the_reading():
    reader, writer = os.pipe()
    os.write(writer, b"ab")
    os.close(writer)
    found = []
    thread = threading.Thread(
        target=read_terminal,
        args=(reader, threading.Event(), found.append, ""),
        kwargs={"debug": False},
        daemon=True,
    )
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert [message.key for message in found] == ["a", "b"]
    os.close(reader)

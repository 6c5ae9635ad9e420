"""The real program, and a history that is killed with it, damaged, locked, read-only, from the future, or full."""

import resource
import signal
import sqlite3
import time
from contextlib import closing, contextmanager

import pytest

from pagedchat.history.place import FILE_NAME
from tests.history.histories import close_history, is_sound, open_history, record, said
from tests.terminal_program import READY, TerminalProgram

F7, F9, CTRL_Q = "\x1b[18~", "\x1b[20~", "\x11"
MOST_LOST = 2.0
"""Seconds of text."""
NOTED = """
import os, time
from pagedchat.chat import session
append, notes = session.ChatSession.append, open(os.environ["HOME"] + "/notes", "a", buffering=1)

def noted(self, *news, **more):
    append(self, *news, **more)
    notes.write(f"{time.monotonic()} {self.chat_id} {len(self.open_text)}\\n")

session.ChatSession.append = noted
"""
"""Writes down how long every reply is at every moment."""
NO_ROOM = """
import resource
from pagedchat.history import thread
thread.RETRY_SECONDS = 0.1
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
"""
IMPATIENT = """
from pagedchat.history import database
database.BUSY_SECONDS = 0.2
"""
NOT_TO_BE_WRITTEN = """
from pagedchat.history import database

def refuse(path):
    raise PermissionError(13, "Permission denied")

database.open_to_append = refuse
"""


@pytest.fixture
def program(tmp_path):
    """Starts programs of one user, one after the other."""

    @contextmanager
    def start(*argv, **fields):
        with TerminalProgram(*argv, environment={"HOME": str(tmp_path)}, **fields) as running:
            yield running
            assert b"Traceback" not in running.written

    return start


@pytest.fixture
def folder(tmp_path):
    return tmp_path / ".local" / "share" / "pagedchat"


def quit_program(running, *, busy=True):
    running.press(CTRL_Q)
    if busy:
        running.wait_for("Quit pagedchat?")
        running.press("\r")
    assert running.wait_for_end() == 0
    assert running.is_left()


def texts_of(folder):
    history = open_history(folder)
    layout = history.windows.take_over()
    found = {pane.chat_id: history.store.read(pane.chat_id) for pane in layout.panes if pane.chat_id}
    close_history(history)
    return layout, found


def test_a_program_that_is_killed_while_four_chats_stream_loses_two_seconds_at_most(program, folder, tmp_path):
    with program("--sessions", "3", before=NOTED) as running:
        running.wait_for(READY)
        running.press(f"Tell me a tale.{F7}")
        running.wait_for_reply()
        running.press(F9)
        running.wait_for("from 1 tale")
        running.press("a draft of mine")
        deadline = time.monotonic() + 4
        running.wait_until(lambda: time.monotonic() > deadline, "time goes on")
        running.signal(signal.SIGKILL)
        killed = time.monotonic()
        assert running.wait_for_end() == -signal.SIGKILL
    lengths = {}
    for line in (tmp_path / "notes").read_text().splitlines():
        moment, chat_id, length = line.split()
        if float(moment) <= killed - MOST_LOST:
            lengths[int(chat_id)] = int(length)
    assert is_sound(folder / FILE_NAME)
    with program("--continue") as running:
        running.wait_until(lambda: "tale»a".encode() in running.written, "no fork")
        running.wait_until(lambda: b"a draft of mine" in running.written, "no draft")
        running.wait_until(lambda: b"interrupted" in running.written, "not said")
        quit_program(running, busy=False)
    layout, found = texts_of(folder)
    assert [pane.number for pane in layout.panes] == [1, 4, 2, 3]
    assert len(lengths) == 4
    for chat_id, length in lengths.items():
        assert length > 0
        assert len(found[chat_id].turns[-1].turn.text) >= length
    assert [record.draft for record in found.values()].count("a draft of mine") == 1
    origins = [record.origin.chat_id for record in found.values() if record.origin]
    assert origins == [layout.panes[0].chat_id]


def test_what_was_typed_is_there_after_quitting_and_going_on(program):
    with program() as running:
        running.wait_for(READY)
        running.press("Hi\r")
        running.wait_for_reply()
        running.press("waits in the queue\r")
        running.wait_for("queued 1")
        running.press("half a thou")
        running.wait_for("half a thou")
        quit_program(running)
    with program("--continue") as running:
        running.wait_until(lambda: b"half a thou" in running.written, "no draft")
        running.wait_until(lambda: b"queued 1" in running.written, "no queue")
        quit_program(running, busy=False)


def test_two_programs_share_a_history_and_one_says_what_the_other_has_open(program):
    with program() as first:
        first.wait_for(READY)
        first.press("Hi\r")
        first.wait_for_reply()
        time.sleep(1)
        with program("--continue") as second:
            second.wait_for("What was open last is open")
            second.wait_until(lambda: READY.encode() in second.written, "not ready")
            second.press("Ho\r")
            second.wait_for_reply()
            quit_program(second)
        with program("--resume", "1") as second:
            second.wait_for("this is a fork of it")
            quit_program(second, busy=False)
        quit_program(first)


def test_a_run_that_is_to_keep_nothing_keeps_nothing(program, folder, tmp_path):
    with program("--ephemeral") as running:
        running.wait_for(READY)
        running.press("Hi\r")
        running.wait_for_reply()
        quit_program(running)
    assert not folder.exists()
    assert list(tmp_path.rglob("prompt_history*")) == []


def test_a_damaged_history_is_kept_under_another_name_and_chats_are_kept_in_a_new_one(program, folder):
    folder.mkdir(parents=True)
    (folder / FILE_NAME).write_bytes(b"nonsense" * 1000)
    with program() as running:
        running.wait_for("The history was damaged")
        running.wait_until(lambda: READY.encode() in running.written, "not ready")
        running.press("Hi\r")
        running.wait_for_reply()
        quit_program(running)
    assert (folder / f"{FILE_NAME}.damaged-1").read_bytes() == b"nonsense" * 1000
    _, found = texts_of(folder)
    assert [record.turns[0].turn.text for record in found.values()] == ["Hi"]


def test_a_history_from_the_future_is_left_alone_and_chats_go_on(program, folder):
    close_history(open_history(folder))
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection:
        connection.execute("PRAGMA user_version = 7")
    before = (folder / FILE_NAME).read_bytes()
    with program() as running:
        running.wait_for("written by a newer pagedchat")
        running.wait_until(lambda: READY.encode() in running.written, "not ready")
        running.press("Hi\r")
        running.wait_for_reply()
        quit_program(running)
    assert (folder / FILE_NAME).read_bytes() == before


def test_a_history_that_is_locked_holds_up_nothing_and_is_written_when_it_is_free(program, folder):
    close_history(open_history(folder))
    with closing(sqlite3.connect(folder / FILE_NAME, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with program(before=IMPATIENT) as running:
            running.wait_for("The history is locked by another program")
            running.wait_until(lambda: READY.encode() in running.written, "not ready")
            running.press("Hi\r")
            running.wait_for_reply()
            other.execute("ROLLBACK")
            running.wait_for("The history is written again")
            quit_program(running)
    _, found = texts_of(folder)
    assert [record.turns[0].turn.text for record in found.values()] == ["Hi"]


def test_a_history_that_is_read_only_is_read_and_chats_go_on(program, folder):
    session = said("Tell me a tale.", "Once upon a time.")
    history = open_history(folder)
    history.store.write(record(session))
    close_history(history)
    with program("--resume", "1", before=NOT_TO_BE_WRITTEN) as running:
        running.wait_until(lambda: b"Once upon a time." in running.written, "not reopened")
        running.wait_until(lambda: b"cannot be written to" in running.written, "not said")
        running.wait_until(lambda: READY.encode() in running.written, "not ready")
        running.press("Hi\r")
        running.wait_for_reply()
        quit_program(running)


def test_a_full_disk_is_said_and_what_is_new_is_kept_when_there_is_room(program, folder):
    with program(before=NO_ROOM) as running:
        running.wait_for(READY)
        running.press("Hi\r")
        running.wait_for_reply()
        for _ in range(4):
            running.press(f"\x1b[200~{'many words ' * 5000}\x1b[201~\r")
        running.wait_for("The disk is full")
        resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        running.wait_for("The history is written again")
        quit_program(running)
    [found] = texts_of(folder)[1].values()
    assert "many words " * 5000 in "".join([found.draft, *found.queue, *(entry.turn.text for entry in found.turns)])
    assert is_sound(folder / FILE_NAME)


def test_leaving_while_the_disk_is_full_is_asked_about_and_what_is_lost_is_said(program):
    with program(before=NO_ROOM) as running:
        running.wait_for(READY)
        for _ in range(4):
            running.press(f"\x1b[200~{'many words ' * 5000}\x1b[201~\r")
        running.wait_for("The disk is full")
        running.press("\x11")
        running.wait_for("Quit pagedchat?")
        running.press("\x11")
        assert running.wait_for_end() == 0
        written = running.written.decode("utf-8", "replace")
    assert written.rstrip().endswith("pagedchat: The disk is full: not all of this run is in the history.")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing_behind_that_was_typed(program, folder, number):
    with program() as running:
        running.wait_for(READY)
        running.press("Hi\r")
        running.wait_for_reply()
        running.press("half a thought")
        running.wait_for("half a thou")
        running.signal(number)
        assert running.wait_for_end() == 128 + number
    [found] = texts_of(folder)[1].values()
    assert found.draft == "half a thought"
    assert found.turns[0].turn.text == "Hi"

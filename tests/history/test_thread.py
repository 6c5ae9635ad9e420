"""What is handed over is written; what cannot be stays and is written later; what goes wrong is one sentence."""

import sqlite3
import time

import pytest

from pagedchat.history.database import HistoryError
from pagedchat.history.place import FILE_NAME
from pagedchat.history.records import LayoutRecord, PaneRecord
from pagedchat.history.thread import HistoryThread
from tests.history.histories import close_history, is_sound, open_history, record, said

PATIENCE = 20.0


@pytest.fixture
def programs(tmp_path):
    """Starts programs that share a history."""
    started = []

    def start(**fields):
        thread = HistoryThread(tmp_path / FILE_NAME, **{"retry_seconds": 0.05, **fields})
        thread.start()
        started.append(thread)
        return thread

    yield start
    for thread in started:
        thread.close()


def read(thread, chat_id):
    return thread.ask(lambda history: history.store.read(chat_id)).result(PATIENCE)


def until(holds):
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_is_handed_over_is_there_for_the_next_program(programs):
    session, first = said("one", "two"), programs()
    first.keep(record(session))
    stood = LayoutRecord((PaneRecord(3, session.chat_id, True), PaneRecord(1, None)), 3, 4, True, ("a/b", "./c"))
    first.keep_layout(stood)
    assert first.close()
    second = programs()
    assert second.ask(lambda history: history.last_layout()).result(PATIENCE) == stood
    assert read(second, session.chat_id) == record(session)
    assert second.take_news() == []


def test_a_question_is_answered_after_what_was_handed_over_before(programs):
    session, thread = said("one", "two"), programs()
    for number in range(50):
        session.rename = number
        session.name = f"name {number}"
        thread.keep(record(session))
    assert read(thread, session.chat_id).title == "name 49"


def test_a_defect_in_a_question_is_its_own_answer_only(programs):
    thread = programs()
    with pytest.raises(ZeroDivisionError):
        thread.ask(lambda history: 1 / 0).result(PATIENCE)
    session = said("one", "two")
    thread.keep(record(session))
    assert read(thread, session.chat_id) is not None


def test_what_one_program_has_open_the_other_forks(programs):
    session = said("one", "two")
    first, second = programs(), programs()
    first.keep(record(session))
    first.keep_layout(LayoutRecord((PaneRecord(1, session.chat_id),), 1))
    read(first, session.chat_id)
    until(lambda: not first.is_behind)
    with pytest.raises(Exception, match="What was open last is open in another pagedchat, process "):
        second.ask(lambda history: history.last_layout()).result(PATIENCE)
    found, said_of_it = second.ask(lambda history: history.chat(session.chat_id)).result(PATIENCE)
    assert found.chat_id != session.chat_id
    assert found.turns == tuple(session.entries)
    assert "“tale” is open in another pagedchat" in said_of_it
    first.close()
    found, said_of_it = second.ask(lambda history: history.chat(session.chat_id)).result(PATIENCE)
    assert (found, said_of_it) == (record(session), "")


def test_two_programs_write_side_by_side(programs):
    threads = [programs() for _ in range(2)]
    sessions = [said("one", name=str(index)) for index in range(2)]
    for number in range(100):
        for thread, session in zip(threads, sessions, strict=True):
            session.append(f"word{number} ", number)
            thread.keep(record(session))
    for thread, session in zip(threads, sessions, strict=True):
        assert read(thread, session.chat_id).turns[-1].turn.text == session.open_text
        assert thread.take_news() == []


def test_a_locked_history_is_said_once_and_written_when_it_is_free(programs, tmp_path, monkeypatch):
    monkeypatch.setattr("pagedchat.history.database.BUSY_SECONDS", 0.05)
    session, thread = said("one"), programs()
    until(lambda: thread.ask(lambda history: True).result(PATIENCE))
    other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    for number in range(5):
        session.append(f"{number} ", number)
        thread.keep(record(session))
        time.sleep(0.1)
    until(lambda: thread.problem is not None)
    assert thread.take_news() == [
        "The history is locked by another program: what is new is kept when that lets it go."
    ]
    other.execute("ROLLBACK")
    other.close()
    until(lambda: not thread.is_behind)
    assert read(thread, session.chat_id).turns[-1].turn.text == session.open_text
    assert thread.take_news() == ["The history is written again; nothing of this run was lost."]


@pytest.mark.parametrize(
    "content", [b"This is no database.", b"SQLite format 3\x00" + b"\xff" * 5000, b"\x00" * 4096]
)
def test_a_damaged_history_is_kept_aside_and_begun_anew(programs, tmp_path, content):
    (tmp_path / FILE_NAME).write_bytes(content)
    session, thread = said("one", "two"), programs()
    thread.keep(record(session))
    assert read(thread, session.chat_id) == record(session)
    [sentence] = thread.take_news()
    aside = tmp_path / f"{FILE_NAME}.damaged-1"
    assert sentence == f"The history was damaged: it is kept as {aside}, and a new one is begun."
    assert aside.read_bytes() == content
    thread.close()
    assert is_sound(tmp_path / FILE_NAME)


def test_a_history_that_is_damaged_while_it_is_used_loses_nothing_of_this_run(programs, tmp_path):
    first, second, thread = said("one", "two"), said("three", "four"), programs()
    thread.keep(record(first))
    thread.keep_layout(LayoutRecord((PaneRecord(1, first.chat_id),), 1))
    read(thread, first.chat_id)
    until(lambda: not thread.is_behind)
    thread.ask(lambda history: history.database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")).result(
        PATIENCE
    )
    with (tmp_path / FILE_NAME).open("r+b") as file:
        size = file.seek(0, 2)
        file.seek(100)
        file.write(b"\xff" * (size - 100))
    thread.ask(lambda history: history.database.connection.execute("PRAGMA shrink_memory")).result(PATIENCE)
    thread.keep(record(second))
    until(lambda: not thread.is_behind)
    assert read(thread, first.chat_id) == record(first)
    assert read(thread, second.chat_id) == record(second)
    assert "is kept as" in " ".join(thread.take_news())
    assert len(list(tmp_path.glob("*.damaged-1"))) == 1


def test_a_damaged_index_is_made_again_from_the_turns(programs, tmp_path):
    session, thread = said("one", "the boat"), programs()
    thread.keep(record(session))
    read(thread, session.chat_id)
    thread.ask(lambda history: history.database.connection.execute("DELETE FROM texts_data")).result(PATIENCE)
    found = thread.ask(lambda history: history.search.chats("boat")).result(PATIENCE)
    assert [chat.chat_id for chat in found.chats] == [session.chat_id]
    assert thread.take_news() == []


def test_a_history_that_is_taken_away_is_written_again(programs, tmp_path):
    session, thread = said("one", "two"), programs()
    thread.keep(record(session))
    read(thread, session.chat_id)
    for file in tmp_path.glob(f"{FILE_NAME}*"):
        file.unlink()
    session.ask("three", 5)
    thread.keep(record(session))
    assert read(thread, session.chat_id) == record(session)
    assert thread.take_news() == ["The history's file was taken away: a new one has the chats of this run."]
    assert (tmp_path / FILE_NAME).exists()


def test_a_newer_history_is_said_and_left_alone(programs, tmp_path):
    close_history(open_history(tmp_path))
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("PRAGMA user_version = 7")
    connection.close()
    thread = programs()
    thread.keep(record(said("one", "two")))
    until(lambda: thread.problem is not None)
    time.sleep(0.2)  # some attempts more
    assert thread.take_news() == [
        "The history was written by a newer pagedchat (version 7; this one knows 2): nothing of this run is kept."
    ]
    with pytest.raises(HistoryError, match="newer"):
        thread.ask(lambda history: history.search.chats()).result(PATIENCE)
    assert not thread.close()


def test_a_history_that_cannot_be_written_to_is_said_once_and_still_read(programs, tmp_path, monkeypatch):
    session, other = said("one", "two"), said("three", "four")
    history = open_history(tmp_path)
    history.store.write(record(session))
    close_history(history)

    def refuse(path):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as closed:
        closed.setattr("pagedchat.history.database.open_to_append", refuse)
        thread = programs()
        thread.keep(record(other))
        assert read(thread, session.chat_id) == record(session)
        until(lambda: thread.problem is not None)
        time.sleep(0.2)
        [sentence] = thread.take_news()
        assert sentence.endswith("cannot be written to (permission denied): what is new is not kept.")
    until(lambda: not thread.is_behind)  # writable again
    assert read(thread, other.chat_id) == record(other)


def test_a_full_disk_is_said_once_and_written_when_there_is_room(programs):
    session, thread = said("one"), programs()
    thread.keep(record(session))
    read(thread, session.chat_id)
    thread.ask(lambda history: history.database.connection.execute("PRAGMA max_page_count = 1")).result(PATIENCE)
    session.append("many words " * 10_000, 1)
    thread.keep(record(session))
    until(lambda: thread.problem is not None)
    time.sleep(0.2)
    assert thread.take_news() == ["The disk is full: what is new is kept in the history when there is room again."]
    thread.ask(lambda history: history.database.connection.execute("PRAGMA max_page_count = 100000")).result(
        PATIENCE
    )
    until(lambda: not thread.is_behind)
    assert read(thread, session.chat_id).turns[-1].turn.text == session.open_text


def test_a_chat_that_cannot_be_written_keeps_no_other_from_being_written(programs):
    odd, other, thread = said("one", "two"), said("three", "four"), programs()
    odd.chat_id = 2**70  # more than the file can hold
    thread.keep(record(odd))
    thread.keep(record(other))
    until(lambda: read(thread, other.chat_id) is not None)
    assert thread.problem is not None or thread.is_behind
    assert thread.take_news()[0].startswith("The history in ")


def test_a_defect_of_ours_is_said_and_the_thread_goes_on(programs, monkeypatch):
    session, thread = said("one", "two"), programs()
    until(lambda: thread.ask(lambda history: True).result(PATIENCE))
    with monkeypatch.context() as defect:
        defect.setattr("pagedchat.history.thread._write_chat", lambda history, record: {}["nothing"])
        thread.keep(record(session))
        until(lambda: thread.problem is not None)
    until(lambda: not thread.is_behind)
    assert read(thread, session.chat_id) == record(session)
    assert "fails ('nothing')" in thread.take_news()[0]


@pytest.mark.parametrize(("trouble", "said"), [
    ("locked", "The history is locked by another program: not all of this run is in the history."),
    ("full", "The disk is full: not all of this run is in the history."),
    ("damaged", "The history is damaged."),
])  # fmt: skip
def test_at_the_end_nothing_is_promised(trouble, said):
    assert HistoryError(trouble, "The history is damaged.").at_the_end == said

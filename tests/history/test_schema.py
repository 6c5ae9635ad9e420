import sqlite3

import pytest

from pagedchat.history import database, schema
from pagedchat.history.database import HistoryError, keep_aside, open_database
from pagedchat.history.place import FILE_NAME
from tests.history.histories import close_history, open_history, record, said


def test_an_older_history_is_brought_up_to_date_and_keeps_its_chats(tmp_path, monkeypatch):
    session = said("one", "two")
    first = open_history(tmp_path)
    first.store.write(record(session))
    close_history(first)
    more = (*schema.MIGRATIONS, "ALTER TABLE chats ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm';")
    monkeypatch.setattr(schema, "MIGRATIONS", more)
    monkeypatch.setattr(schema, "VERSION", len(more))
    monkeypatch.setattr(database, "VERSION", len(more))
    again = open_history(tmp_path)
    assert again.store.read(session.chat_id) == record(session)
    assert again.database.connection.execute("SELECT mood FROM chats").fetchone() == ("calm",)
    assert schema.version_of(again.database.connection) == len(more)
    close_history(again)


def test_a_migration_that_fails_changes_nothing(tmp_path, monkeypatch):
    close_history(open_history(tmp_path))
    more = (*schema.MIGRATIONS, "ALTER TABLE chats ADD COLUMN mood TEXT;\nALTER TABLE nowhere ADD COLUMN x;")
    monkeypatch.setattr(schema, "MIGRATIONS", more)
    monkeypatch.setattr(schema, "VERSION", len(more))
    connection = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    with pytest.raises(sqlite3.OperationalError):
        schema.migrate(connection)
    assert schema.version_of(connection) == len(more) - 1
    with pytest.raises(sqlite3.OperationalError):
        connection.execute("SELECT mood FROM chats")
    connection.close()


def test_a_newer_history_is_left_alone(tmp_path):
    close_history(open_history(tmp_path))
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("PRAGMA user_version = 7")
    connection.close()
    before = (tmp_path / FILE_NAME).read_bytes()
    with pytest.raises(HistoryError, match=r"newer pagedchat \(version 7; this one knows 2\)") as caught:
        open_database(tmp_path / FILE_NAME)
    assert caught.value.trouble == "newer"
    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_damaged_files_are_kept_side_by_side(tmp_path):
    for content in (b"first", b"second"):
        (tmp_path / FILE_NAME).write_bytes(content)
        (tmp_path / f"{FILE_NAME}-wal").write_bytes(content)
        keep_aside(tmp_path / FILE_NAME)
    names = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert names == {
        f"{FILE_NAME}.damaged-1": b"first", f"{FILE_NAME}.damaged-1-wal": b"first",
        f"{FILE_NAME}.damaged-2": b"second", f"{FILE_NAME}.damaged-2-wal": b"second",
    }  # fmt: skip

import stat
from dataclasses import replace

import pytest

from pagedchat.chat.turns import Entry, Turn
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.history.place import FILE_NAME
from pagedchat.history.sessions import record_of, session_of
from tests.history.histories import close_history, is_sound, open_history, record, said


def kept(history, session, draft=""):
    history.store.write(record(session, draft))
    return history.store.read(session.chat_id)


def texts(found):
    return [entry.turn.text for entry in found.turns]


def num_turns(history):
    return history.database.connection.execute("SELECT count(*) FROM turns").fetchone()[0]


def test_a_chat_is_read_as_it_was_written(history):
    session = said("one", "two", system="Be brief.", overrides=SamplingOverrides(temperature=0.5, stop=["x"]))
    session.enqueue("three")
    session.enqueue("four")
    found = kept(history, session, "a draft\nof two lines")
    assert found == record(session, "a draft\nof two lines")
    assert [entry.turn_id for entry in found.turns] == [entry.turn_id for entry in session.entries]


def test_forks_that_are_read_together_read_the_tree_that_they_share_once(history):
    tale = said("one", "two")
    fork = tale.fork(2, 9)
    fork.ask("three", 10)
    for each in (tale, fork):
        history.store.write(record(each))
    statements, trees = [], {}
    history.database.connection.set_trace_callback(statements.append)
    first, second = (history.store.read(each.chat_id, trees) for each in (tale, fork))
    assert sum("RECURSIVE tree " in statement for statement in statements) == 1
    assert first.branches is second.branches
    assert first.branches == history.store.read(tale.chat_id).branches


def test_a_turn_that_is_known_is_not_written_again(history):
    session = said("one", "two")
    history.store.write(record(session))
    changes = history.database.connection.total_changes
    history.store.write(record(session))
    assert history.database.connection.total_changes - changes <= 2  # the chat's own row
    assert num_turns(history) == 2


def test_a_reply_that_is_being_written_is_kept_as_far_as_it_is(history):
    session = said("one")
    session.append("Once", 1)
    history.store.write(record(session))
    session.append(" upon", 2)
    found = kept(history, session)
    assert found.turns[-1] == Entry(Turn("assistant", "Once upon"), "interrupted")
    session.finish("stop")
    found = kept(history, session)
    assert found.turns[-1] == Entry(Turn("assistant", "Once upon"), "complete")
    assert num_turns(history) == 2


def test_forks_share_the_turns_of_their_beginning(history):
    session = said("one", "two")
    child = session.fork(2, 9)
    child.ask("three", 10)
    history.store.write(record(session))
    found = kept(history, child)
    assert texts(found) == ["one", "two", "three"]
    assert found.tree_id == session.chat_id
    assert found.origin.chat_id == session.chat_id
    assert num_turns(history) == 3


def test_a_reply_that_was_asked_for_again_is_a_sibling_and_the_first_one_stays(history):
    session = said("one", "first")
    history.store.write(record(session))
    session.regenerate(9)
    session.append("second", 1)
    session.finish("stop")
    assert texts(kept(history, session)) == ["one", "second"]
    rows = history.database.connection.execute("SELECT text, parent FROM turns WHERE role = 'assistant'").fetchall()
    assert sorted(text for text, _ in rows) == ["first", "second"]
    assert {parent for _, parent in rows} == {session.entries[0].turn_id}


def test_half_a_surrogate_pair_is_written_as_what_can_be_read(history):
    session = said("a\ud800b\x00\x1b[31m", "two", name="\udfff")
    found = kept(history, session)
    assert (found.title, texts(found)[0]) == ("\ufffd", "a\ufffdb\x00\x1b[31m")


def test_numbers_of_chats_follow_one_another(history):
    for _ in range(5):
        history.store.write(record(said("one", "two")))
    first = said("one")
    for text in ("a", "b", "c"):
        first.append(text, 1)
        history.store.write(record(first))
    assert history.store.chat_of_number(6) == first.chat_id
    assert history.store.chat_of_number(7) is None


def test_deleted_chats_are_back_at_once_and_gone_for_good_after_a_sweep(history, tmp_path):
    session, other = said("one", "two"), said("three", "four")
    for each in (session, other):
        history.store.write(record(each))
    history.store.delete(session.chat_id)
    assert history.store.read(session.chat_id) is None
    assert history.store.sweep() == 0  # too early
    history.store.restore(session.chat_id)
    assert texts(history.store.read(session.chat_id)) == ["one", "two"]
    history.store.delete(session.chat_id)
    assert history.store.sweep(older_than=-1) == 1
    history.store.restore(session.chat_id)
    assert history.store.read(session.chat_id) is None
    assert num_turns(history) == 2
    assert is_sound(tmp_path / FILE_NAME)


def test_what_a_fork_shares_stays_when_its_source_is_swept_away(history, tmp_path):
    session = said("one", "two")
    child = session.fork(2, 9)
    session.ask("only mine", 3)
    for each in (session, child):
        history.store.write(record(each))
    history.store.delete(session.chat_id)
    history.store.sweep(older_than=-1)
    assert texts(history.store.read(child.chat_id)) == ["one", "two"]
    assert num_turns(history) == 2
    assert is_sound(tmp_path / FILE_NAME)


def test_a_chat_that_another_program_swept_away_is_written_again(history, tmp_path):
    session = said("one", "two")
    history.store.write(record(session))
    other = open_history(tmp_path)
    other.store.delete(session.chat_id)
    other.store.sweep(older_than=-1)
    close_history(other)
    assert texts(kept(history, session)) == ["one", "two"]


def test_only_the_owner_may_read_it(history, tmp_path):
    history.store.write(record(said("one", "two")))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {FILE_NAME, f"{FILE_NAME}-wal"}
    assert [path.name for path in files if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


def test_a_reopened_chat_goes_on_where_it_was_left(history):
    session = said("one", "two", overrides=SamplingOverrides(top_k=3), system="Be brief.")
    session.enqueue("waits")
    again = session_of(kept(history, session, "half a"), 4)
    assert again.label == "4 tale"
    assert again.entries == session.entries
    assert (again.overrides, again.system) == (session.overrides, session.system)
    assert again.take_returned() == "half a"
    assert list(again.queue) == ["waits"]
    assert "computes these turns anew" in again.notice.message
    assert "A prompt waits from last time" in again.notice.message


def test_a_prompt_without_a_reply_goes_back_to_be_edited(history):
    session = said("one", "two", "three")
    again = session_of(kept(history, session, "a draft"), 1)
    assert [entry.turn.text for entry in again.entries] == ["one", "two"]
    assert again.take_returned() == "three\n\na draft"


@pytest.mark.parametrize("settings", ["", "[]", '{"temperature": "hot"}', '{"temperature": -3}', "{", '{"x": 1}'])
def test_settings_that_nobody_understands_are_passed_over(history, settings):
    session = said("one", "two")
    history.store.write(record(session))
    history.database.connection.execute("UPDATE chats SET settings = ?", (settings,))
    assert session_of(history.store.read(session.chat_id), 1).overrides == SamplingOverrides()


def test_a_history_that_somebody_else_has_written_is_read_as_far_as_it_makes_sense(history):
    session = said("one", "two", "three")
    session.append("four", 1)
    session.finish("stop")
    history.store.write(record(session))
    sql = history.database.connection
    first, second, third, _ = (entry.turn_id for entry in session.entries)
    sql.execute("UPDATE turns SET text = CAST(x'ff61' AS TEXT), ending = 'no such' WHERE id = ?", (second,))
    sql.execute("UPDATE turns SET role = 'assistant' WHERE id = ?", (third,))
    again = session_of(history.store.read(session.chat_id), 1)
    assert [(entry.turn.text, entry.ending) for entry in again.entries] == [
        ("one", "complete"),
        ("\ufffda", "interrupted"),
    ]
    sql.execute("UPDATE turns SET parent = ? WHERE id = ?", (third, first))  # round and round
    assert history.store.read(session.chat_id).turns


def test_turns_that_were_left_out_are_left_out_again(history):
    session = said("one", "two", "three", "four")
    session.when_full = "drop"
    session.leave_out(2)
    history.store.write(record_of(session, "", "m"))
    again = session_of(history.store.read(session.chat_id), 1)
    assert (again.when_full, again.num_left_out) == ("drop", 2)
    assert [turn.text for turn in again.turns] == ["three", "four"]


@pytest.mark.parametrize(
    "settings", ['{"num_left_out": 99}', '{"num_left_out": -3}', '{"when_full": "never"}', "[]"]
)
def test_what_was_left_out_makes_sense_whatever_a_file_says(history, settings):
    session = said("one", "two")
    again = session_of(replace(record_of(session, "", "m"), settings=settings), 1)
    assert again.when_full == "stop"
    assert again.num_left_out in (0, 2)


def test_a_reply_that_was_cut_short_and_goes_on_at_a_server_is_the_same_turn(history):
    session = said("one")
    session.append("Once upon", 2)
    kept(history, session)
    history.store.close_left_open([])
    again = session_of(history.store.read(session.chat_id), 1)
    history.store._written.clear()  # as in another run of the program
    again.go_on_with(again.entries[-1], 70)
    again.start()
    again.append("Once upon a time", 4)
    assert texts(kept(history, again)) == ["one", "Once upon a time"]
    again.finish("stop")
    found = kept(history, again)
    assert (texts(found), num_turns(history)) == (["one", "Once upon a time"], 2)
    assert found.turns[-1].ending == "complete"
    assert len(history.search.chats("time").chats) == 1

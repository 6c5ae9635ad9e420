import pytest

from pagedchat.errors import InvalidValueError
from pagedchat.history import run
from pagedchat.history.place import FILE_NAME
from pagedchat.history.records import LayoutRecord, PaneRecord
from tests.history.histories import close_history, open_history, record, said


@pytest.fixture
def begin(tmp_path):
    started = []

    def begin(**fields):
        started.append(run.begin(path=tmp_path / FILE_NAME, **fields))
        return started[-1]

    yield begin
    for each in started:
        each.thread.close()


@pytest.fixture
def tale(tmp_path):
    """A chat and its fork, beside an empty one, as a program left them."""
    tale = said("one", "two")
    fork = tale.fork(3, 9)
    fork.ask("three", 10)
    fork.append("four", 1)
    history = open_history(tmp_path)
    for each in (tale, fork):
        history.store.write(record(each, f"draft {each.session_id}"))
    panes = (PaneRecord(1, tale.chat_id), PaneRecord(3, fork.chat_id), PaneRecord(2, None))
    history.windows.write(LayoutRecord(panes, 3, 4, True))
    close_history(history)
    return tale


def test_what_was_open_is_reopened_as_it_stood(begin, tale):
    reopened = begin(go_on=True).reopened
    assert [pane.number for pane in reopened.layout.panes] == [1, 3, 2]
    assert (reopened.layout.focused, reopened.layout.wanted, reopened.layout.zoomed) == (3, 4, True)
    first, fork = reopened.sessions
    assert (first.session_id, fork.session_id) == (1, 3)
    assert [entry.turn.text for entry in fork.entries] == ["one", "two", "three", "four"]
    assert (fork.state, fork.take_returned()) == ("interrupted", "draft 3")
    assert (fork.origin.session_id, fork.origin.num_prompts) == (1, 1)
    assert (fork.tree_id, fork.chat_id != first.chat_id) == (first.tree_id, True)


def test_a_chat_is_reopened_by_its_number(begin, tale):
    reopened = begin(number=2).reopened
    [fork] = reopened.sessions
    assert (fork.session_id, fork.origin.session_id) == (1, 0)  # its source is not open
    assert fork.entries[-1].turn.text == "four"


def test_a_number_that_no_chat_has_is_one_sentence(begin, tale):
    with pytest.raises(InvalidValueError, match="There is no chat 9 in the history"):
        begin(number=9)


def test_the_first_run_has_nothing_to_go_on_with_and_says_so(begin):
    reopened = begin(go_on=True).reopened
    assert reopened.sessions == ()
    assert reopened.said == ("There is no earlier chat to go on with.",)


def test_what_another_program_has_open_is_left_to_it(begin, tale):
    begin(go_on=True)
    second = begin(go_on=True)
    assert second.reopened.sessions == ()
    assert second.reopened.said[0].startswith("What was open last is open in another pagedchat, process ")


def test_a_chat_that_was_deleted_is_not_reopened(begin, tale, tmp_path):
    history = open_history(tmp_path)
    history.store.delete(tale.chat_id)
    close_history(history)
    reopened = begin(go_on=True).reopened
    assert [session.session_id for session in reopened.sessions] == [3]
    assert reopened.sessions[0].origin.session_id == 0
    assert [pane.number for pane in reopened.layout.panes] == [3, 2]


def test_a_history_that_cannot_be_read_is_said_by_the_thread_alone(begin, tale, tmp_path):
    (tmp_path / FILE_NAME).write_bytes(b"nonsense" * 500)
    found = begin(go_on=True)
    assert found.reopened.sessions == ()
    assert found.reopened.said == ("There is no earlier chat to go on with.",)
    [sentence] = found.thread.take_news()
    assert "was damaged" in sentence


def test_a_fork_of_what_another_program_has_open_is_new_to_the_history(begin, tale):
    begin(go_on=True).thread.ask(lambda history: None).result()
    reopened = begin(number=1).reopened
    [fork] = reopened.sessions
    assert fork.chat_id != tale.chat_id
    assert fork.tree_id == tale.tree_id
    assert reopened.unchanged == []
    assert "this is a fork of it" in reopened.said[0]
    assert [session.session_id for session in begin(number=2).reopened.unchanged] == []


def test_panes_that_make_no_sense_are_passed_over(begin, tale, tmp_path):
    history = open_history(tmp_path)
    sql = history.database.connection
    sql.execute("UPDATE panes SET number = 1")
    sql.execute("UPDATE windows SET focused = 'x', wanted = 5, zoomed = -1")
    close_history(history)
    reopened = begin(go_on=True).reopened
    assert [pane.number for pane in reopened.layout.panes] == [1]
    assert [session.chat_id for session in reopened.sessions] == [tale.chat_id]
    assert reopened.layout.focused == 0

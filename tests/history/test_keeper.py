import pytest

from pagedchat.chat.session import ChatSession
from pagedchat.history.keeper import GROWING_SECONDS, ChatPlace, HistoryKeeper
from pagedchat.history.records import LayoutRecord, PaneRecord
from pagedchat.history.sessions import session_of
from tests.history.histories import record, said


class Listener:
    """In the place of the thread."""

    def __init__(self):
        self.kept = []
        self.layouts = []
        self.forgotten = []

    def keep(self, found):
        self.kept.append(found)

    def keep_layout(self, layout):
        self.layouts.append(layout)

    def forget(self, chat_id):
        self.forgotten.append(chat_id)


@pytest.fixture
def thread():
    return Listener()


@pytest.fixture
def clock():
    return [100.0]


@pytest.fixture
def look(thread, clock):
    keeper = HistoryKeeper(thread, lambda: clock[0])

    def look(*chats, drafts=(), **fields):
        places = [ChatPlace(chat, "toy") for chat in chats]
        keeper.look(places, dict(drafts), LayoutRecord(focused=1), **fields)
        found, thread.kept = thread.kept, []
        return found

    look.know = keeper.know
    return look


def test_a_turn_is_handed_over_at_once(look):
    chat = ChatSession(1)
    assert look(chat) == []
    chat.ask("Hi", 1)
    assert look(chat) == [record(chat)]
    assert look(chat) == []


def test_a_reply_that_grows_is_handed_over_once_a_second_and_its_end_at_once(look, clock):
    chat = said("Hi")
    look(chat)
    handed_over = 0
    for number in range(50):
        clock[0] += GROWING_SECONDS / 10
        chat.append("word ", number)
        handed_over += len(look(chat))
    assert 4 <= handed_over <= 5
    chat.append("end", 99)
    chat.finish("stop")
    assert look(chat) == [record(chat)]


def test_what_is_typed_is_handed_over_once_a_second(look, clock):
    chat = ChatSession(1)
    assert [found.draft for found in look(chat, drafts={1: "a"}.items())] == ["a"]
    assert look(chat, drafts={1: "a dra"}.items()) == []
    clock[0] += GROWING_SECONDS
    assert [found.draft for found in look(chat, drafts={1: "a draft"}.items())] == ["a draft"]
    assert [found.draft for found in look(chat, drafts={1: "a draft!"}.items(), all_of_it=True)] == ["a draft!"]


def test_a_prompt_that_went_back_to_be_edited_is_part_of_the_draft(look):
    chat = said("Hi")
    chat.stop()
    assert [found.draft for found in look(chat, drafts={1: "more"}.items())] == ["Hi\n\nmore"]
    chat.take_returned()
    assert look(chat, drafts={1: "Hi\n\nmore"}.items()) == []


def test_a_queue_is_handed_over_at_once(look):
    chat = said("Hi")
    look(chat)
    chat.enqueue("more")
    assert look(chat)[0].queue == ("more",)


def test_what_came_from_the_history_is_written_only_when_it_changes(look):
    chat = session_of(record(said("Hi", "Hello"), "draft"), 1)
    look.know([chat])
    assert look(chat) == []
    chat.take_returned()
    chat.dismiss()
    assert look(chat, drafts={1: "draft"}.items()) == []
    chat.ask("more", 2)
    assert look(chat)[0].turns[-1].turn.text == "more"


def test_a_chat_that_is_closed_is_written_as_it_was_left(look, thread, clock):
    chat, other = said("Hi"), said("Ho")
    chat.append("Once", 1)
    look(chat, other, drafts={1: "draft"}.items())
    chat.append(" upon a time", 4)
    [found] = look(other)
    assert (found.open_text, found.draft) == ("Once upon a time", "draft")
    assert thread.forgotten == [chat.chat_id]
    assert thread.layouts[-1].panes == (PaneRecord(1, other.chat_id),)


def test_every_chat_is_kept_with_the_model_that_answers_it(thread, clock):
    keeper = HistoryKeeper(thread, lambda: clock[0])
    left, right = said("Hi"), said("Ho")
    right.session_id = 2
    places = [ChatPlace(left, "org/left"), ChatPlace(right, "org/right", beside=True)]
    keeper.look(places, {}, LayoutRecord(models=("org/left", "org/right")))
    assert [record.model for record in thread.kept] == ["org/left", "org/right"]
    panes = (PaneRecord(1, left.chat_id), PaneRecord(2, right.chat_id, beside=True))
    assert thread.layouts == [LayoutRecord(panes, models=("org/left", "org/right"))]
    right.append("more", 1)
    keeper.look(places[:1], {}, LayoutRecord())  # its group was closed
    assert thread.kept[-1].model == "org/right"


def test_empty_chats_have_a_place_and_what_the_program_shows_itself_has_none(look, thread):
    empty, shown = ChatSession(1), said("tour")
    shown.kept = False
    child = shown.fork(7, 3)
    assert look(empty, shown, child) == []
    assert thread.layouts == [LayoutRecord((PaneRecord(1, None),), 1)]
    look(empty)
    assert len(thread.layouts) == 1

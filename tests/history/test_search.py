import pytest

from pagedchat.history import schema
from pagedchat.history.search import passage
from tests.history.histories import close_history, open_history, record, said

TALES = {
    "sea": said("Tell me a sea story.", "The Boat left before dawn — très tôt.", name="sea"),
    "land": said("And on land?", "Sheep, mostly. 100% of them.", name="land"),
    "japan": said("海の上で何を見た", "月が出た", name="japan"),
}


@pytest.fixture(params=["full text", "plain"])
def tales(request, tmp_path, monkeypatch):
    """With FTS5, and with a build of SQLite that has none."""
    if request.param == "plain":
        monkeypatch.setattr(schema, "_FULL_TEXT", "CREATE VIRTUAL TABLE texts USING no_such_module(text)")
    history = open_history(tmp_path)
    assert history.database.has_full_text == (request.param == "full text")
    for tale in TALES.values():
        history.store.write(record(tale))
    yield history
    close_history(history)


def names(history, text=""):
    return [chat.title for chat in history.search.chats(text).chats]


def test_without_words_all_chats_are_listed_the_last_one_first(tales):
    assert names(tales) == ["japan", "land", "sea"]
    tales.store.write(record(TALES["sea"]))
    assert names(tales) == ["sea", "japan", "land"]
    assert tales.search.chats(limit=1).num_all == 3


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("boat", ["sea"]), ("BOAT dawn", ["sea"]), ("boa", ["sea"]), ("boat sheep", []), ("land", ["land"]),
        ("jap", ["japan"]), ("何を", ["japan"]), ("月", ["japan"]), ("100%", ["land"]), ("%", ["land"]), ('"', []),
        ("AND", ["land"]), ("NEAR(", []), ("text:boat", []), ("\\", []), ("_", []), ("*", []),
    ],
)  # fmt: skip
def test_chats_are_found_by_what_was_said_and_by_title(tales, text, found):
    assert names(tales, text) == found


def test_with_full_text_accents_do_not_matter(tmp_path):
    history = open_history(tmp_path)
    history.store.write(record(TALES["sea"]))
    assert names(history, "tres TOT") == ["sea"]
    close_history(history)


def test_a_fork_is_found_by_what_it_shares_and_by_what_is_its_own(tales):
    child = TALES["sea"].fork(2, 9)
    child.name = "sea»a"
    child.ask("And the captain?", 3)
    child.append("Asleep.", 1)
    child.finish("stop")
    tales.store.write(record(child))
    assert names(tales, "boat") == ["sea»a", "sea"]
    assert names(tales, "asleep") == ["sea»a"]
    assert tales.search.chats("asleep").chats[0].passage == "Asleep."


def test_what_no_chat_shows_any_more_does_not_find_it(tales):
    session = said("one", "an answer about whales", name="again")
    tales.store.write(record(session))
    session.regenerate(5)
    session.append("something else", 1)
    session.finish("stop")
    tales.store.write(record(session))
    assert names(tales, "whales") == []


def test_deleted_chats_are_not_found(tales):
    tales.store.delete(TALES["sea"].chat_id)
    assert names(tales, "boat") == []
    assert names(tales) == ["japan", "land"]


def test_what_was_written_without_full_text_is_found_with_it(tmp_path, monkeypatch):
    with monkeypatch.context() as without:
        without.setattr(schema, "_FULL_TEXT", "CREATE VIRTUAL TABLE texts USING no_such_module(text)")
        history = open_history(tmp_path)
        history.store.write(record(TALES["sea"]))
        close_history(history)
    history = open_history(tmp_path)
    assert names(history, "boat") == ["sea"]
    close_history(history)


def test_a_reply_that_a_killed_program_was_writing_is_found_by_the_next(tmp_path):
    session = said("one")
    session.append("whales ahoy", 2)
    history = open_history(tmp_path)
    history.store.write(record(session))
    close_history(history)
    again = open_history(tmp_path)
    assert names(again, "ahoy") == ["tale"]
    close_history(again)


def test_a_passage_begins_a_little_before_what_was_found():
    text = "word " * 40 + "the boat\nsank\x1b[2J " + "word " * 100
    found = passage(text, ["BOAT"])
    assert found.startswith("…")
    assert "the boat sank word" in found
    assert found.index("boat") < 40
    assert "\x1b" not in found

"""Numbers and letters of owners."""

from pagedchat.cache_events import FIRST_OF_PROGRAMS
from pagedchat.view.engine_view import EngineView
from pagedchat.view.owners import owner_glyph, owner_number, unlabelled


def test_owners_are_numbered_as_their_labels_are() -> None:
    assert owner_number(7, "12 tale") == 12
    assert owner_number(7, "tale") == 7
    assert [owner_glyph(number) for number in (1, 9, 10, 35, 36)] == ["1", "9", "a", "z", "1"]


def test_requests_of_programs_have_names_and_letters_of_their_own() -> None:
    first = FIRST_OF_PROGRAMS
    assert [unlabelled(seq_id) for seq_id in (3, first, first + 7)] == ["seq 3", "request 10", "request 17"]
    assert [owner_number(seq_id, unlabelled(seq_id)) for seq_id in (3, first, first + 7)] == [3, 10, 17]
    assert owner_glyph(owner_number(first, "")) == "a"
    assert EngineView().name(first) == "request 10"

"""Numbers and letters of owners."""

from pagedchat.view.owners import owner_glyph, owner_number


def test_owners_are_numbered_as_their_labels_are() -> None:
    assert owner_number(7, "12 tale") == 12
    assert owner_number(7, "tale") == 7
    assert [owner_glyph(number) for number in (1, 9, 10, 35, 36)] == ["1", "9", "a", "z", "1"]

"""From one block to the next, along a chat or among the same owners."""

from pagedchat.view.blocks.neighbours import in_chat, same_owners
from tests.scripted_reports import story


def test_neighbours_in_a_chat_stay_with_the_chat() -> None:
    mirror = story().view.mirror
    assert mirror is not None
    assert in_chat(mirror, 23, 1, None) == (32, 1)
    assert in_chat(mirror, 23, 1, 2) == (31, 2)
    assert in_chat(mirror, 32, -1, 1) == (23, 1)
    assert in_chat(mirror, 0, -1, None) is None
    assert in_chat(mirror, 200, 1, None) is None


def test_blocks_of_the_same_owners_go_round() -> None:
    mirror = story().view.mirror
    assert mirror is not None
    assert same_owners(mirror, 0) == 1
    assert same_owners(mirror, 23) == 0
    assert same_owners(mirror, 32) is None
    assert same_owners(mirror, 30) == 24
    assert same_owners(mirror, 200) is None

import pytest

from pagedchat.view.chats.layout import choose_layout, next_layout, visible_page


@pytest.mark.parametrize(
    ("num_chats", "wanted", "width", "height", "panes"),
    [
        (1, None, 120, 40, 1),
        (2, None, 120, 40, 2),
        (3, None, 120, 40, 4),
        (5, None, 120, 40, 6),
        (9, None, 120, 40, 9),
        (20, None, 120, 40, 9),
        (4, None, 99, 40, 1),
        (9, None, 100, 40, 4),
        (9, None, 120, 16, 6),
        (2, None, 120, 6, 1),
        (1, 4, 120, 40, 4),
        (9, 2, 120, 40, 2),
    ],
)
def test_as_many_panes_as_fit(num_chats, wanted, width, height, panes):
    assert choose_layout(num_chats, wanted, width, height) == panes


def test_the_page_holds_the_focused_chat():
    assert visible_page([1, 2, 3, 4, 5], 4, 2) == [3, 4]
    assert visible_page([1, 2, 3, 4, 5], 5, 2) == [4, 5]
    assert visible_page([1, 2, 3], 3, 2) == [2, 3]
    assert visible_page([1, 2, 3], 1, 4) == [1, 2, 3]
    assert visible_page([7], 9, 2) == [7]


def test_layouts_go_round():
    assert [next_layout(panes) for panes in (1, 2, 4, 6, 9)] == [2, 4, 6, 9, 1]

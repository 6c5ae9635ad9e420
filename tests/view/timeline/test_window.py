"""The timeline's window: follows the newest column, stands still under a cursor, never leaves what is kept."""

from hypothesis import given
from hypothesis import strategies as st

from pagedchat.view.timeline.window import ColumnWindow


def test_without_a_cursor_it_follows_the_newest() -> None:
    window = ColumnWindow()
    assert window.fit(0, 3, 10) == range(3)
    assert window.fit(0, 30, 10) == range(20, 30)


def test_with_a_cursor_it_stands_still_while_columns_come() -> None:
    window = ColumnWindow()
    window.fit(0, 30, 10)
    window.move(-1)
    assert (window.cursor, window.in_sight) == (29, range(20, 30))
    window.move(-2)
    assert (window.cursor, window.fit(0, 50, 10)) == (27, range(20, 30))


def test_the_cursor_takes_the_window_along_at_both_edges() -> None:
    window = ColumnWindow()
    window.fit(0, 30, 10)
    window.move(-15)
    assert (window.cursor, window.in_sight) == (15, range(15, 25))
    window.move(12)
    assert (window.cursor, window.in_sight) == (27, range(18, 28))


def test_past_the_newest_column_it_follows_again() -> None:
    window = ColumnWindow()
    window.fit(0, 30, 10)
    window.move(-1)
    window.move(1)
    assert window.cursor is None
    window.move(1)
    assert window.cursor is None


def test_a_forgotten_column_hands_its_cursor_to_the_oldest() -> None:
    window = ColumnWindow()
    window.fit(0, 30, 10)
    window.choose(2)
    assert window.fit(8, 40, 10) == range(8, 18)
    assert window.cursor == 8


def test_nothing_to_choose_where_there_are_no_columns() -> None:
    window = ColumnWindow()
    assert window.fit(0, 0, 10) == range(0)
    window.move(-1)
    window.choose(4)
    assert window.cursor is None


_MOVES = st.lists(st.tuples(st.integers(-30, 30), st.integers(0, 20), st.integers(1, 40)), max_size=30)


@given(_MOVES)
def test_whatever_happens_the_window_shows_kept_columns_and_the_cursor(moves: list[tuple[int, int, int]]) -> None:
    window, end = ColumnWindow(), 0
    for by, new, room in moves:
        end += new
        first = max(0, end - 50)
        sight = window.fit(first, end, room)
        window.move(by)
        sight = window.in_sight
        assert first <= sight.start <= sight.stop <= end
        assert len(sight) == min(room, end - first)
        assert window.cursor is None or window.cursor in sight

"""How many panes fit, and which chats they show. Arithmetic only."""

from collections.abc import Sequence

LAYOUTS = (1, 2, 4, 6, 9)
GRIDS = {1: (1, 1), 2: (2, 1), 4: (2, 2), 6: (3, 2), 9: (3, 3)}
"""Panes -> (columns, rows)."""
GRIDS_OF_TWO = {1: (1, 1), 2: (1, 2), 4: (2, 2), 6: (2, 3), 9: (3, 3)}
"""The same in a group that has another one beside it: higher than wide."""

MIN_SIZE = (40, 10)
"""Below this many columns or rows nothing useful can be drawn."""
WIDE_ENOUGH_FOR_TWO = 100
"""Below this many columns there is one pane, with tabs."""
WIDE_ENOUGH_FOR_PANEL = 150
"""From here on the inspector stands beside the chats; below, it takes the whole screen."""
CHROME_ROWS = 4
"""Rows of header, events and keys."""
_MIN_PANE = (36, 7)


def choose_layout(num_chats: int, wanted: int | None, width: int, height: int, *, beside: bool = False) -> int:
    """Panes to show: the layout asked for or the smallest that holds all chats, as far as the room allows.

    Args:
        num_chats: of the group.
        wanted: panes that were asked for; None: as many as there are chats.
        width, height: of its room, in cells.
        beside: whether another group stands beside it.
    """
    panes = wanted or next((size for size in LAYOUTS if size >= num_chats), LAYOUTS[-1])
    fitting = [size for size in LAYOUTS if size <= panes and _fits(size, width, height, beside)]
    return fitting[-1] if fitting else 1


def groups_beside(num_groups: int, terminal_width: int, width: int) -> int:
    """How many groups stand beside each other in this part of the terminal's width."""
    if terminal_width < WIDE_ENOUGH_FOR_TWO:
        return 1
    return max(1, min(num_groups, width // _MIN_PANE[0]))


def _fits(panes: int, width: int, height: int, beside: bool) -> bool:
    columns, rows = (GRIDS_OF_TWO if beside else GRIDS)[panes]
    if columns > 1 and width < WIDE_ENOUGH_FOR_TWO and not beside:
        return False
    return width // columns >= _MIN_PANE[0] and height // rows >= _MIN_PANE[1]


def visible_page(session_ids: Sequence[int], focused: int, panes: int) -> list[int]:
    """The page of `panes` chats that holds the focused one; the last page begins early enough to be full."""
    index = session_ids.index(focused) if focused in session_ids else 0
    start = max(0, min(index - index % panes, len(session_ids) - panes))
    return list(session_ids[start : start + panes])


def next_layout(current: int) -> int:
    """The layout after this one, round and round."""
    return LAYOUTS[(LAYOUTS.index(current) + 1) % len(LAYOUTS)]

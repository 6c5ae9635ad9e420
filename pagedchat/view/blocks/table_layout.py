"""Which line of the block tables shows what: a line a sequence and, if wanted, a line a block below it. Pure."""

from bisect import bisect_right
from itertools import accumulate
from typing import NamedTuple

HEADING = -1


class Spot(NamedTuple):
    """A sequence's own line (`place` is `HEADING`), or one block of its table."""

    seq_id: int
    place: int


class TableLayout:
    """Lines from top to bottom.

    Args:
        lengths: sequence id -> blocks it has, in the order in which they are shown.
        by_block: whether each block has a line of its own.
    """

    def __init__(self, lengths: dict[int, int], *, by_block: bool) -> None:
        self.lengths = lengths
        self.by_block = by_block
        self._order = list(lengths)
        self._places = {seq_id: place for place, seq_id in enumerate(self._order)}
        sizes = [1 + (length if by_block else 0) for length in lengths.values()]
        self._starts = [0, *accumulate(sizes)]

    @property
    def num_lines(self) -> int:
        """All of them."""
        return self._starts[-1]

    def at(self, line: int) -> Spot:
        """What this line shows."""
        place = bisect_right(self._starts, line) - 1
        return Spot(self._order[place], line - self._starts[place] - 1)

    def line_of(self, spot: Spot) -> int:
        """The line that shows it."""
        start = self._starts[self._places[spot.seq_id]]
        return start + 1 + spot.place if self.by_block else start

    def clamp(self, spot: Spot | None) -> Spot | None:
        """The nearest spot that is there, always a block where the sequence has one."""
        if not self._order:
            return None
        if spot is None or spot.seq_id not in self.lengths:
            spot = Spot(self._order[0], 0)
        last = self.lengths[spot.seq_id] - 1
        return Spot(spot.seq_id, max(HEADING, min(max(0, spot.place), last)))

    def move(self, spot: Spot, blocks: int, rows: int) -> Spot:
        """So many blocks on in the table, so many lines on; where blocks have lines, both are the same."""
        if self.by_block:
            return self._move_line(spot, blocks + rows)
        place = self._places[spot.seq_id] + rows
        seq_id = self._order[max(0, min(place, len(self._order) - 1))]
        return self.clamp(Spot(seq_id, max(0, spot.place + blocks))) or spot

    def _move_line(self, spot: Spot, lines: int) -> Spot:
        """To the next block of all; headings are passed over."""
        step = 1 if lines > 0 else -1
        line = self.line_of(spot) + lines
        while 0 <= line < self.num_lines:
            there = self.at(line)
            if there.place >= 0:
                return there
            line += step
        return spot

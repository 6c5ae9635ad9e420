"""A terminal with something on its screen, of which only one pane may change.

It is pyte's, but for how characters become cells. Pyte stops in the middle of a text at a joiner or a variation
selector, and wraps a line for an accent in its last column; no terminal does. And terminals differ in what is one
character: some count every code point by itself, some draw what belongs together (an emoji with its skin, a flag's
two letters) in one place. Both are asked: what is drawn must stay in its place in either.
"""

import re
from collections.abc import Iterator
from typing import Any
from unicodedata import category

import pyte
from pyte import modes
from pyte.screens import Char
from wcwidth import iter_graphemes, wcswidth, wcwidth

_SENTINEL = "#"
_COLOUR_OR_PLACE = re.compile(rb"\x1b\[((?:\d{1,3}(?:;\d{1,3})*)?)([mH])")
_MOST_KEPT = 10_000


class Terminal(pyte.Screen):
    """Full of sentinels but for a pane.

    Args:
        columns, lines: of the screen.
        pane: `(x, y, width, height)` of what may change.
    """

    def __init__(self, columns: int, lines: int, pane: tuple[int, int, int, int]) -> None:
        self.clusters = False
        """Whether what belongs together is drawn in one place."""
        self._drawn: dict[Char, dict[str, Char]] = {}
        self.answers: list[str] = []
        """What the terminal has said to the program, which would read it as keys."""
        super().__init__(columns, lines)
        self.pane = pane
        self._stream = pyte.ByteStream(self)
        self._fill()
        x, _, width, _ = pane
        self._beside = [column for column in range(columns) if not x <= column < x + width]
        self._before = self._facts()

    def show(self, data: bytes) -> None:
        """Take in what a program writes.

        Colours and places of the cursor, most of what there is, are told apart here: pyte's parser goes through
        them character by character, and says the same.
        """
        stream, at = self._stream, 0
        for found in _COLOUR_OR_PLACE.finditer(data):
            stream.feed(data[at : found.start()])
            at = found.end()
            if not stream._taking_plain_text:  # it is in the middle of something else
                stream.feed(found.group())
                continue
            numbers = [int(number) for number in found[1].split(b";")] if found[1] else [0]
            (self.select_graphic_rendition if found[2] == b"m" else self.cursor_position)(*numbers)
        stream.feed(data[at:])

    def damage(self) -> str:
        """What is not as it was outside the pane, in words; empty if nothing is."""
        facts = self._facts()
        if facts != self._before:
            return ", ".join(
                f"{name} is {facts[name]!r}, not {was!r}"
                for name, was in self._before.items()
                if facts[name] != was
            )
        row = next((row for row in range(self.lines) if not self._is_whole(row)), None)
        return "" if row is None else f"row {row} reads {self._text(row)!a}"

    def mend(self) -> None:
        """After damage: everything as it was."""
        clusters = self.clusters
        self.reset()
        self.clusters = clusters
        self.title = self.icon_name = ""
        self.answers.clear()
        self._stream = pyte.ByteStream(self)
        self._fill()

    # --- what pyte does otherwise than terminals do ----------------------------------------------------

    def draw(self, data: str) -> None:
        """Characters into cells."""
        if self.charset or modes.IRM in self.mode or modes.DECAWM not in self.mode:
            super().draw(data)  # damage is done already
            return
        cursor, cells = self.cursor, self._cells_of(self.cursor.attrs)
        for text, width in self._glyphs(data):
            if width <= 0:
                self._join(text)
                continue
            if cursor.x + width > self.columns:
                self.carriage_return()
                self.linefeed()
            row = self.buffer[cursor.y]
            row[cursor.x] = cells[text] if text in cells else self._new_cell(cells, text)
            if width == 2:
                row[cursor.x + 1] = cells[""] if "" in cells else self._new_cell(cells, "")
            cursor.x += width

    def _cells_of(self, attrs: Char) -> dict[str, Char]:
        """Cells with these colours that were drawn before, by their text: making one costs as much as all else."""
        if len(self._drawn) > _MOST_KEPT:
            self._drawn.clear()
        return self._drawn.setdefault(attrs, {})

    def _new_cell(self, cells: dict[str, Char], text: str) -> Char:
        if len(cells) > _MOST_KEPT:
            cells.clear()
        cell: Char = self.cursor.attrs._replace(data=text)
        cells[text] = cell
        return cell

    def _glyphs(self, data: str) -> Iterator[tuple[str, int]]:
        if data.isascii() and data.isprintable():
            return ((char, 1) for char in data)
        if self.clusters:
            return ((cluster, _cluster_width(cluster)) for cluster in iter_graphemes(data))
        return ((char, wcwidth(char)) for char in data)

    def _join(self, mark: str) -> None:
        """To the cell on the left, which may be somebody else's."""
        x, y = self.cursor.x - 1, self.cursor.y
        if x < 0:
            return
        cell = self.buffer[y][x]
        self.buffer[y][x] = cell._replace(data=cell.data[:8] + mark)

    def write_process_input(self, data: str) -> None:
        """The terminal answers."""
        self.answers.append(data)

    # --- what may not change ---------------------------------------------------------------------------

    def _fill(self) -> None:
        cell = Char(_SENTINEL)
        for y in range(self.lines):
            row = self.buffer[y]
            for x in range(self.columns):
                row[x] = cell
        self._sentinel = cell
        self._whole_row = dict(self.buffer[0])

    def _is_whole(self, row: int) -> bool:
        _, top, _, height = self.pane
        line = self.buffer[row]
        if not top <= row < top + height:
            return line == self._whole_row
        sentinel = self._sentinel
        return all(line[column] == sentinel for column in self._beside)

    def _text(self, row: int) -> str:
        return "".join(self.buffer[row][column].data for column in range(self.columns))

    def _facts(self) -> dict[str, Any]:
        """All but the cells."""
        cursor = self.cursor
        return {
            "mode": set(self.mode), "title": self.title, "icon": self.icon_name, "margins": self.margins,
            "charset": (self.charset, self.g0_charset, self.g1_charset), "saved cursors": len(self.savepoints),
            "tab stops": set(self.tabstops), "style": cursor.attrs, "hidden cursor": cursor.hidden,
            "answers": list(self.answers), "num lines": len(self.buffer),
        }  # fmt: skip


def _cluster_width(cluster: str) -> int:
    """What belongs together is no wider than its parts, but for what is made an emoji by a selector.

    Vowel signs beside their letter are left out: no two terminals agree about them; see `drawable`.
    """
    text = "".join(char for char in cluster if category(char) != "Mc")
    together = wcswidth(text)
    return together if "\ufe0f" in text else min(together, sum(map(wcwidth, text)))

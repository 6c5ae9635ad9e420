"""Hostile outputs, one after the other, drawn as Textual writes them, until something outside the pane has changed.

Everything follows from a seed and the number of the output, so any of them can be drawn again by itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from rich.console import Console
from rich.control import Control
from textual.strip import Strip

from tools.fuzz.terminal.emulator import Terminal
from tools.fuzz.terminal.hostile_text import hostile_output
from tools.fuzz.terminal.places import PLACES, Place

SCREENS = ((64, 12, (8, 2, 44, 7)), (40, 8, (0, 0, 40, 8)), (30, 9, (12, 1, 18, 6)))
"""`(columns, lines, pane)`: a pane among others, a whole screen, one against the right edge."""
_WEIGHTS, _PLACES = zip(*PLACES, strict=True)
_CONSOLE = Console(color_system="truecolor", force_terminal=True)


@dataclass(frozen=True, slots=True)
class Break:
    """An output that got out of its pane."""

    seed: int
    number: int
    pieces: list[str]
    place: str
    damage: str

    def __str__(self) -> str:
        return (
            f"seed {self.seed}, output {self.number}, drawn as {self.place}: {self.damage}\n"
            f"  pieces: {self.pieces!a}\n"
            f"  again:  python -m tools.fuzz terminal --seed {self.seed} --only {self.number}"
        )


class Drawing:
    """Draws outputs of one seed; the terminals are used again and again."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._terminals = [Terminal(*screen) for screen in SCREENS]

    def outputs(self, first: int, count: int) -> Iterator[Break | None]:
        """The outputs of these numbers, one after the other: what each broke, or None."""
        for number in range(first, first + count):
            yield self.output(number)

    def output(self, number: int) -> Break | None:
        """Draw one."""
        rng = Random(f"{self._seed} {number}")
        pieces = hostile_output(rng)
        place: Place = rng.choices(_PLACES, _WEIGHTS)[0]
        return self.draw(number, pieces, place, rng)

    def draw(self, number: int, pieces: list[str], place: Place, rng: Random) -> Break | None:
        """These pieces, in this place."""
        terminal = rng.choice(self._terminals)
        terminal.clusters = rng.random() < 0.5
        _, _, width, height = terminal.pane
        shown: list[Strip] = []
        for strips in place(pieces, width, height):
            terminal.show(_written(terminal, strips, shown, rng))
            shown = strips
        damage = terminal.damage()
        if not damage:
            return None
        terminal.mend()
        return Break(self._seed, number, pieces, place.__name__, damage)


def _written(terminal: Terminal, strips: list[Strip], shown: list[Strip], rng: Random) -> bytes:
    """The rows that are not shown yet, as Textual writes them: each row alone, or with what lies beside it, or of
    a row only what something in front of it leaves to see."""
    x, top, width, _ = terminal.pane
    whole = rng.random() < 0.3
    written: list[str] = []
    for y, strip in enumerate(strips, top):
        if y - top < len(shown) and strip == shown[y - top] and not whole:
            continue
        cut = strip
        column = x
        if rng.random() < 0.15:
            start, end = sorted((rng.randint(0, width), rng.randint(0, width)))
            cut, column = strip.crop(start, end), x + start
        if whole and cut is strip:
            written.append(_moved(0, y) + "#" * x + cut.render(_CONSOLE) + "#" * (terminal.columns - x - width))
        else:
            written.append(_moved(column, y) + cut.render(_CONSOLE))
    return "".join(written).encode()


def _moved(x: int, y: int) -> str:
    return Control.move_to(x, y).segment.text

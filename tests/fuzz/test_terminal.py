"""Whatever a model writes, in whatever pieces: nothing outside its pane changes. And the terminal would notice."""

from random import Random

import pytest

from pagedchat.chat.visible import VisibleText
from pagedchat.view.chats.wrap import WrappedRow
from tools.fuzz.terminal import places
from tools.fuzz.terminal.run import Drawing

NUM_OUTPUTS = 1000
"""At a time."""
GOT_OUT = (
    ["a\u200db" * 60],
    ["🏻" * 60],
    ["❤\ufe0f" * 60],
    ["\x1b]0;t", "itle\x07", "\x1b[2", "J"],
    ["\u0301\u0301"],
    ["海\u0301" * 60],
)
"""Outputs that changed what is beside their pane, before what is drawn was only what every terminal draws alike."""


@pytest.mark.parametrize("first", [0, NUM_OUTPUTS])
def test_nothing_outside_the_pane_changes(first: int) -> None:
    broken = [found for found in Drawing(seed=1).outputs(first, NUM_OUTPUTS) if found]
    assert not broken, broken[0]


@pytest.mark.parametrize("pieces", GOT_OUT, ids=lambda pieces: ascii(pieces[0][:4]))
@pytest.mark.parametrize("place", [place for _, place in places.PLACES])
def test_what_once_got_out_stays_in(pieces: list[str], place: places.Place) -> None:
    drawing = Drawing(seed=0)
    for number in range(6):
        assert drawing.draw(number, pieces, place, Random(number)) is None


@pytest.mark.parametrize(
    "text",
    [
        "\x1b]0;title\x07", "\x1b[?25l", "\x1b[6n", "\x1b7", "\x1bc", "\x1b[H#", "\x9b1;2r",
        "a\u200db" * 60, "🏻" * 60,
    ],
    ids=lambda text: ascii(text[:12]),
)  # fmt: skip
def test_what_gets_out_is_noticed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagedchat.view.markdown.plain.visible", VisibleText)
    monkeypatch.setattr("pagedchat.view.markdown.plain.wrap", lambda text, _: [WrappedRow(text, "\n")])
    drawing = Drawing(seed=0)
    found = [drawing.draw(number, [text], places.transcript, Random(number)) for number in range(8)]
    assert any(found)

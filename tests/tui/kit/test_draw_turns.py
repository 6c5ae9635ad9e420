"""Drawing in turns: how much at a time, how far apart, and what may wait."""

import asyncio
from collections.abc import Callable
from typing import ClassVar, cast

import pytest
from textual.app import App, ComposeResult
from textual.widget import Widget

from pagedchat.tui.kit.draw_turns import (
    FIGURES_SECONDS,
    ROUND_SECONDS,
    SHARE,
    TEXT_SECONDS,
    TURN_SECONDS,
    DrawTurns,
    ScreenPart,
)


class Shown:
    """Stands for a widget."""

    is_attached = True
    _pruning = _closing = False


class Turns:
    """Drives `DrawTurns` by hand: a part costs `cost` seconds of processor time; the first have their `seconds`."""

    def __init__(self, cost: float, num_parts: int = 6, *seconds: float) -> None:
        self.now = self.cpu = 0.0
        self.cost = cost
        self.drawn: list[int] = []
        self.changed = True
        self.widgets = [Shown() for _ in range(num_parts)]
        self._seconds = [*seconds, *[0.0] * (num_parts - len(seconds))]
        self.turns = DrawTurns(self._round, lambda: self.cpu, lambda: self.now)

    def _round(self) -> list[ScreenPart]:
        return [self._part(index) for index in range(len(self.widgets))] if self.changed else []

    def _part(self, index: int) -> ScreenPart:
        return ScreenPart(cast("Widget", self.widgets[index]), self._draw(index), self._seconds[index])

    def _draw(self, index: int) -> Callable[[], None]:
        def draw() -> None:
            self.drawn.append(index)
            self.cpu += self.cost

        return draw

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += self.turns.turn()


@pytest.mark.parametrize("cost", [0.0001, 0.003, 0.02, 0.2])
def test_drawing_takes_its_share_of_a_core_and_no_more(cost: float) -> None:
    turns = Turns(cost)
    turns.run(30)
    assert turns.cpu / turns.now <= SHARE + 0.02
    assert {turns.drawn.count(index) - turns.drawn.count(0) for index in range(6)} <= {0, -1}


def test_cheap_parts_are_drawn_together_and_dear_ones_one_at_a_time() -> None:
    cheap, dear = Turns(0.0005), Turns(0.05)
    cheap.run(5)
    dear.run(5)
    assert cheap.turns.at_once >= 5
    assert dear.turns.at_once == 1


def test_a_fast_machine_draws_no_more_rounds_than_anybody_sees() -> None:
    turns = Turns(0.0)
    turns.run(10)
    assert turns.drawn.count(0) <= 10 / ROUND_SECONDS + 1


def test_nothing_is_drawn_while_nothing_has_changed() -> None:
    turns = Turns(0.001)
    turns.changed = False
    turns.run(1)
    assert turns.drawn == []
    turns.changed = True
    turns.run(1)
    assert 0 in turns.drawn


def test_figures_wait_for_their_time() -> None:
    turns = Turns(0.0, 1, FIGURES_SECONDS)
    turns.run(10)
    assert 9 / FIGURES_SECONDS <= len(turns.drawn) <= 10 / FIGURES_SECONDS + 1


def test_the_last_figures_are_drawn_although_nothing_changes_any_more() -> None:
    turns = Turns(0.0, 2, FIGURES_SECONDS)
    turns.run(4 * ROUND_SECONDS)
    turns.changed = False
    assert turns.drawn.count(0) == 1
    turns.run(2 * FIGURES_SECONDS)
    assert turns.drawn.count(0) == 2


def test_figures_and_text_are_drawn_in_one_round_and_there_is_none_between_two_texts(monkeypatch) -> None:
    turns, times = Turns(0.0, 2, TEXT_SECONDS, FIGURES_SECONDS), list[float]()
    begin = turns.turns._begin_round
    monkeypatch.setattr(turns.turns, "_begin_round", lambda now: (times.append(now), begin(now)))
    with_figures = []
    while turns.now < 3.02:
        before = turns.drawn.count(1)
        turns.now += turns.turns.turn() + 0.001  # nobody wakes up to the moment
        if turns.drawn.count(1) > before:
            with_figures.append(turns.drawn[-2:])
    assert 30 <= len(times) <= 33
    assert 30 <= turns.drawn.count(0) <= 32
    assert 6 <= len(with_figures) <= 7


def test_a_widget_that_has_gone_is_not_drawn() -> None:
    turns = Turns(0.001)
    turns.widgets[3].is_attached = False
    turns.run(1)
    assert 3 not in turns.drawn
    assert 4 in turns.drawn


class Inside(Widget):
    COMPONENT_CLASSES: ClassVar[set[str]] = {"inside--text"}


class Outside(Widget):
    """Is drawn while it is being removed, when what is inside has gone."""

    inside_was_there: bool | None = None

    def compose(self) -> ComposeResult:
        yield Inside()

    def on_mount(self) -> None:
        self.inside = self.query_one(Inside)
        self.turns = DrawTurns(lambda: [ScreenPart(self, self.draw)])
        self.num_drawn = 0
        self.turns.turn()

    def draw(self) -> None:
        self.inside.get_component_styles("inside--text")
        self.num_drawn += 1

    def on_unmount(self) -> None:
        self.inside_was_there = "inside--text" in self.inside._component_styles
        self.turns._next_at = 0.0
        self.turns.turn()


async def test_what_is_being_removed_is_not_drawn_any_more() -> None:
    async with App[None]().run_test() as pilot:
        outside = Outside()
        await pilot.app.screen.mount(outside)
        await outside.remove()
        assert outside.inside_was_there is False
        assert outside.num_drawn == 1


async def test_it_runs_until_cancelled() -> None:
    turns = Turns(0.0)
    turns.now = 1.0
    running = asyncio.create_task(turns.turns.run())
    await asyncio.sleep(4 * TURN_SECONDS)
    running.cancel()
    assert turns.drawn

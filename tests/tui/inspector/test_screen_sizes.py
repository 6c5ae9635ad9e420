"""The inspector's screen in any terminal, and while the terminal is being resized under it."""

import random

import pytest
from textual.app import App
from textual.pilot import Pilot

from pagedchat.tui.chat.header import HeaderBar
from pagedchat.tui.inspector.pool.block_detail import BlockDetail
from pagedchat.tui.inspector.screen import InspectorScreen
from pagedchat.tui.kit.key_bar import KeyBar
from pagedchat.view.engine_view import EngineView
from tests.scripted_reports import ScriptedEngine, random_workload, story

SMALL, LARGE = (40, 10), (200, 60)


class InspectorApp(App[None]):
    def __init__(self, view: EngineView) -> None:
        super().__init__()
        self.animation_level = "none"
        self.inspector = InspectorScreen(view)

    def on_mount(self) -> None:
        self.push_screen(self.inspector)


@pytest.mark.parametrize("size", [SMALL, (60, 12), (80, 24), (120, 40), LARGE])
async def test_header_panels_and_keys_fit(size: tuple[int, int]) -> None:
    app = InspectorApp(story().view)
    async with app.run_test(size=size) as pilot:
        app.inspector.refresh_view()
        await pilot.pause()
        header, keys = app.inspector.query_one(HeaderBar), app.inspector.query_one(KeyBar)
        grid = app.inspector.panel.block_map.grid
        assert header.region.y == 0
        assert keys.region.bottom == size[1]
        assert header.region.bottom <= grid.region.y
        assert grid.region.bottom < keys.region.y
        assert grid.size.height >= 1
        assert grid.picture is not None


async def test_a_storm_of_resizes_while_reports_come_does_no_harm() -> None:
    engine = ScriptedEngine(
        num_blocks=24, block_size=4, num_host_blocks=24, max_num_batched_tokens=12, preemption_mode="swap"
    )
    rng = random.Random(11)
    work = random_workload(engine, rng, 1000)
    app = InspectorApp(engine.view)
    async with app.run_test(size=LARGE) as pilot:
        for number in range(12):
            next(work)
            await press_something(pilot, rng)
            app.inspector.refresh_view()
            await pilot.resize_terminal(*(SMALL if number % 2 == 0 else LARGE))
            next(work)
            app.inspector.refresh_view()
        await pilot.pause()
        grid = app.inspector.panel.block_map.grid
        assert grid.cell_layout is not None
        assert grid.size.width > 50
        assert grid.num_lines == grid.cell_layout.num_lines


async def press_something(pilot: Pilot[None], rng: random.Random) -> None:
    """Keys of the map and of a block's detail."""
    keys = ["enter", "escape", "h", "j"] if isinstance(pilot.app.screen, BlockDetail) else ["enter", "c", "plus"]
    await pilot.press(rng.choice([*keys, "l", "minus", "pagedown"]))

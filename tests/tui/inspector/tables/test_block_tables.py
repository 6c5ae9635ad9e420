"""The block tables as they are drawn, and their cursor."""

import msgspec
import pytest

from pagedchat.events import Steps
from pagedchat.tui.inspector.tables.block_tables import BlockTables
from pagedchat.tui.kit.line_view import LineBar
from pagedchat.tui.messages import BlockChosen, BlockOpened
from pagedchat.view.engine_view import EngineView
from tests.scripted_reports import ScriptedEngine, story
from tests.tui.widget_app import WidgetApp, drawn
from tests.view.blocks.test_tables import swapped


def posted(told: list[object], kind: type[BlockChosen | BlockOpened]) -> list[int]:
    """Blocks of the messages of this kind; the hook hears each once for every widget that it passes."""
    messages = {id(message): message.block_id for message in told if isinstance(message, kind)}
    return list(messages.values())


# --- the drawn panel ----------------------------------------------------------------------------------


async def show(view: EngineView, size: tuple[int, int]) -> tuple[list[str], str]:
    app = WidgetApp(BlockTables(view))
    async with app.run_test(size=size) as pilot:
        app.widget.refresh_view()  # type: ignore[attr-defined]
        await pilot.pause()
        lines = drawn(app.widget.lines)  # type: ignore[attr-defined]
        return lines, drawn(app.widget.query_one(LineBar))[0]


async def test_a_line_a_sequence_and_the_sum() -> None:
    lines, totals = await show(story().view, (60, 8))
    assert lines[:4] == [
        "1 tale   ● 000² 001² … 019² 020² 021² 022² 023² 032* [13/16]",
        "2 tale»a ● 000² 001² … 019² 020² 021² 022² 023² 031 [13/16]",
        "3 code   ○ 024 025 026 027 028 029 030 [ 7/16]",
        "4 notes  ● 033 034 035 036 037 038 039 [ 5/16]",
    ]
    assert max(map(len, lines)) <= 60
    assert totals == "√ 64 entries − 24 shared = 40 used · waste 26 slots"


async def test_token_text_stands_beside_each_block() -> None:
    engine = story()
    engine.view.token_texts = {
        3000 + i: text for i, text in enumerate([b"And", b" so\n", b" \xf0\x9f", b"\x8c\x8a!"])
    }
    engine.view.token_texts |= dict.fromkeys(range(3004, 3096), b" sea")
    app = WidgetApp(BlockTables(engine.view))
    async with app.run_test(size=(60, 60)) as pilot:
        tables = app.widget
        assert isinstance(tables, BlockTables)
        tables.refresh_view()
        tables.toggle_token_text()
        await pilot.pause()
        lines = drawn(tables.lines)
    start = lines.index("3 code   ○ 7 blocks, 104 tokens [ 7/16]")
    assert lines[start + 1] == '  024     16/16 r1  "And so¶ 🌊! sea sea sea sea sea sea s…"'


async def test_the_cursor_reaches_every_block_and_opens_it() -> None:
    app = WidgetApp(BlockTables(story().view))
    told: list[object] = []
    async with app.run_test(size=(60, 8), message_hook=told.append) as pilot:
        tables = app.widget
        assert isinstance(tables, BlockTables)
        tables.refresh_view()
        tables.lines.focus()
        await pilot.press(*["right"] * 12)
        assert tables.lines.chosen_block == 12
        assert "012²" in drawn(tables.lines)[0]
        await pilot.press("down", "down", "end", "enter")
        assert tables.lines.chosen_block == 30
        tables.toggle_token_text()
        await pilot.press("down")
        assert tables.lines.chosen_block == 33
    assert posted(told, BlockChosen) == [*range(1, 13), 12, 30, 33]
    assert posted(told, BlockOpened) == [30]


async def test_a_click_chooses_and_a_second_one_opens() -> None:
    app = WidgetApp(BlockTables(story().view))
    told: list[object] = []
    async with app.run_test(size=(60, 8), message_hook=told.append) as pilot:
        tables = app.widget
        assert isinstance(tables, BlockTables)
        tables.refresh_view()
        await pilot.pause()
        column = drawn(tables.lines)[2].index("026")
        await pilot.click(tables.lines, offset=(column, 2))
        assert tables.lines.chosen_block == 26
        await pilot.click(tables.lines, offset=(column + 3, 2))
        assert tables.lines.chosen_block == 26
        await pilot.click(tables.lines, offset=(column, 2), times=2)
    assert posted(told, BlockOpened) == [26]


async def test_a_swapped_sequence_shows_its_host_blocks() -> None:
    lines, totals = await show(swapped().view, (60, 8))
    assert lines[1] == "2 code ↓ h0 h1 h2 [2/4]"
    assert totals.endswith("waste 2 slots · 3 on host")


async def test_only_lines_that_look_different_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = story()
    app = WidgetApp(BlockTables(engine.view))
    async with app.run_test(size=(60, 8)) as pilot:
        tables = app.widget
        assert isinstance(tables, BlockTables)
        for _ in range(2):
            tables.refresh_view()
            await pilot.pause()
            engine.run()
        changed: list[int] = []
        monkeypatch.setattr(tables.lines, "lines_changed", changed.extend)
        tables.refresh_view()
        assert changed == [0, 1, 3]
        changed.clear()
        tables.refresh_view()
        assert changed == []


async def test_disagreement_is_said_in_words() -> None:
    engine = story()
    report = engine.core.step()
    engine.view.apply(
        Steps([msgspec.structs.replace(report, pool=msgspec.structs.replace(report.pool, in_use=41))])
    )
    _, totals = await show(engine.view, (100, 8))
    assert totals.startswith("‼ 64 entries")
    assert totals.endswith("but the engine counts 64 entries, 41 used")


async def test_a_narrow_panel_says_the_sum_on_two_lines() -> None:
    app = WidgetApp(BlockTables(story().view))
    async with app.run_test(size=(34, 8)) as pilot:
        await pilot.pause()
        app.widget.refresh_view()  # type: ignore[attr-defined]
        await pilot.pause()
        assert drawn(app.widget.query_one(LineBar)) == [
            "√ 64 entries − 24 shared = 40 used",
            "  waste 26 slots",
        ]


async def test_ascii_only() -> None:
    engine = story()
    app = WidgetApp(BlockTables(engine.view))
    app.ascii = True  # type: ignore[attr-defined]
    async with app.run_test(size=(60, 40)) as pilot:
        tables = app.widget
        assert isinstance(tables, BlockTables)
        tables.refresh_view()
        await pilot.pause()
        shown = [*drawn(tables.lines), *drawn(tables.query_one(LineBar))]
        assert shown[0] == "1 tale   r 000^2 001^2 ... 021^2 022^2 023^2 032* [13/16]"
    assert all(line.isascii() for line in shown)


async def test_a_chat_without_blocks_says_so() -> None:
    engine = ScriptedEngine(num_blocks=4)
    engine.core.open(1)
    engine.flush()
    lines, totals = await show(engine.view, (60, 4))
    assert lines[0] == "seq 1 ○ no blocks"
    assert totals.startswith("√ 0 entries")

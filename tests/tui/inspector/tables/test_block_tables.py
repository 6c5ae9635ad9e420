"""The block tables: ids, ref counts, elision, and the sum held against the engine's own counts."""

import msgspec
import pytest

from pagedchat.events import Steps
from pagedchat.tui.inspector.tables.block_tables import BlockTables
from pagedchat.tui.kit.line_view import LineBar
from pagedchat.tui.messages import BlockChosen, BlockOpened
from pagedchat.view.blocks.table_layout import Spot, TableLayout
from pagedchat.view.blocks.table_rows import Entry, Marks, elide, fill_words, table_entries
from pagedchat.view.blocks.table_totals import count_tables
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.words import fit, short_label, sparkline, superscript
from tests.scripted_reports import ScriptedEngine, pressed, story
from tests.tui.widget_app import WidgetApp, drawn


def entries(*texts: str) -> list[Entry]:
    return [Entry(text, "own", place) for place, text in enumerate(texts)]


def elided(table: list[Entry], width: int, chosen: int = -1) -> list[Entry]:
    return elide(len(table), table.__getitem__, width, chosen)


def marks(*copied: int, ascii_only: bool = False) -> Marks:
    return Marks(set(copied), frozenset(), ascii_only)


def words(line: list[Entry]) -> str:
    return " ".join(entry.text for entry in line)


def swapped() -> ScriptedEngine:
    """The moment at which a preempted sequence lies in host memory."""
    engine = ScriptedEngine(
        num_blocks=6, block_size=4, num_host_blocks=8, preemption_mode="swap", max_num_batched_tokens=16
    )
    engine.view.labels = {1: "1 tale", 2: "2 code"}
    engine.ask(1, 9, max_tokens=9)
    engine.ask(2, 7, max_tokens=9)
    engine.run(6)
    return engine


def posted(told: list[object], kind: type[BlockChosen | BlockOpened]) -> list[int]:
    """Blocks of the messages of this kind; the hook hears each once for every widget that it passes."""
    messages = {id(message): message.block_id for message in told if isinstance(message, kind)}
    return list(messages.values())


def agreeing(engine: ScriptedEngine) -> tuple[int, int, int, bool]:
    mirror = engine.view.mirror
    assert mirror is not None
    totals = count_tables(mirror)
    assert totals.refs == totals.entries == sum(len(seq.block_table) for seq in mirror.sequences.values())
    return totals.entries, totals.used, totals.waste, totals.agrees


# --- pieces -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (23, "000 001 002 003 004 005"),
        (22, "000 001 … 003 004 005"),
        (15, "000 … 004 005"),
        (9, "000 … 005"),
        (5, "… 005"),
        (1, "…"),
    ],
)
def test_long_tables_lose_their_middle(width: int, text: str) -> None:
    assert words(elided(entries("000", "001", "002", "003", "004", "005"), width)) == text


@pytest.mark.parametrize(
    ("chosen", "text"),
    [
        (0, "000 001 … 008 009 010 011"),
        (3, "000 … 002 003 004 … 011"),
        (5, "000 … 004 005 006 … 011"),
        (11, "000 001 … 008 009 010 011"),
    ],
)
def test_the_chosen_entry_is_never_elided(chosen: int, text: str) -> None:
    table = entries(*(f"{place:03d}" for place in range(12)))
    assert words(elided(table, 25, chosen)) == text
    for width in range(1, 60):
        for place in range(12):
            line = elided(table, width, place)
            assert place in [entry.place for entry in line]
            assert width < 20 or len(words(line)) <= width


def test_entries_tell_sharing_copies_pins_and_host_blocks() -> None:
    mirror = story().view.mirror
    assert mirror is not None
    mirror.pinned[1] = None
    tale = table_entries(mirror, mirror.sequences[1], marks(32), 200)
    assert tale[0] == Entry("000²", "shared", 0)
    assert tale[1] == Entry("001²◆", "shared", 1)
    assert tale[-1] == Entry("032*", "copied", 24)
    assert table_entries(mirror, mirror.sequences[3], marks(), 200)[0] == Entry("024", "own", 0)
    assert [
        entry.text for entry in table_entries(mirror, mirror.sequences[1], marks(ascii_only=True), 200)[:2]
    ] == [
        "000^2",
        "001^2!",
    ]
    mirror = swapped().view.mirror
    assert mirror is not None
    assert table_entries(mirror, mirror.sequences[2], marks(), 200) == [Entry(f"h{i}", "host", i) for i in range(3)]


def test_highlighted_blocks_are_marked() -> None:
    mirror = story().view.mirror
    assert mirror is not None
    table = table_entries(mirror, mirror.sequences[3], Marks(set(), frozenset({25, 26})), 200)
    assert [entry.place for entry in table if entry.marked] == [1, 2]


def test_lines_and_spots_are_each_others_inverse() -> None:
    layout = TableLayout({4: 2, 7: 0, 9: 3}, by_block=True)
    assert [layout.at(line) for line in range(layout.num_lines)] == [
        Spot(4, -1), Spot(4, 0), Spot(4, 1), Spot(7, -1), Spot(9, -1), Spot(9, 0), Spot(9, 1), Spot(9, 2),
    ]  # fmt: skip
    assert [layout.line_of(layout.at(line)) for line in range(layout.num_lines)] == list(range(layout.num_lines))
    assert layout.move(Spot(4, 1), 0, 1) == Spot(9, 0)
    assert layout.move(Spot(9, 0), 0, -1) == Spot(4, 1)
    assert layout.move(Spot(9, 2), 1, 0) == Spot(9, 2)
    assert layout.clamp(Spot(5, 3)) == Spot(4, 0)
    assert TableLayout({}, by_block=True).clamp(None) is None


def test_the_fill_is_that_of_the_last_block() -> None:
    mirror = story().view.mirror
    assert mirror is not None
    assert fill_words(mirror, mirror.sequences[1]) == "[13/16]"
    assert fill_words(mirror, mirror.sequences[4]) == "[ 5/16]"


def test_small_words() -> None:
    assert superscript(120) == "¹²⁰"
    assert fit("two tales", 6) == "two t…"
    assert fit("日本語", 4) == "日… "
    assert fit("a", 3) == "a  "
    assert short_label("3 Tell me a sea⑂a", 12) == "3 Tell me…⑂a"
    assert short_label("2 tale⑂a", 12) == "2 tale⑂a"
    assert short_label("2 tale⑂abcdefghijkl", 6) == "2 tal…"
    assert sparkline([0, 1, 4, 8], 8) == " ▁▄█"
    assert sparkline([0, 0], 0) == "  "


# --- sums ---------------------------------------------------------------------------------------------


def test_the_sum_is_the_engines_own() -> None:
    assert agreeing(story()) == (64, 40, 26, True)
    for mode in ("swap", "recompute"):
        engine = pressed(mode)
        pool = engine.reports[-1].pool
        assert agreeing(engine)[:2] == (pool.table_entries, pool.in_use)
        assert agreeing(engine)[3]


def test_the_light_is_red_when_the_engine_counts_something_else() -> None:
    engine = story()
    report = engine.core.step()
    wrong = msgspec.structs.replace(report, pool=msgspec.structs.replace(report.pool, table_entries=65))
    engine.tell(wrong)
    assert not agreeing(engine)[3]


def test_an_empty_cache_agrees() -> None:
    assert agreeing(ScriptedEngine(num_blocks=4)) == (0, 0, 0, True)


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
        "2 tale⑂a ● 000² 001² … 019² 020² 021² 022² 023² 031 [13/16]",
        "3 code   ○ 024 025 026 027 028 029 030 [ 7/16]",
        "4 notes  ● 033 034 035 036 037 038 039 [ 5/16]",
    ]
    assert max(map(len, lines)) <= 60
    assert totals == "✓ 64 entries − 24 shared = 40 used · waste 26 slots"


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
    assert lines[start + 1] == '  024     16/16 r1  "And so⏎ 🌊! sea sea sea sea sea sea s…"'


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
    assert lines[1] == "2 code ⇣ h0 h1 h2 [2/4]"
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
    assert totals.startswith("✗ 64 entries")
    assert totals.endswith("but the engine counts 64 entries, 41 used")


async def test_a_narrow_panel_says_the_sum_on_two_lines() -> None:
    app = WidgetApp(BlockTables(story().view))
    async with app.run_test(size=(34, 8)) as pilot:
        await pilot.pause()
        app.widget.refresh_view()  # type: ignore[attr-defined]
        await pilot.pause()
        assert drawn(app.widget.query_one(LineBar)) == [
            "✓ 64 entries − 24 shared = 40 used",
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
    assert totals.startswith("✓ 0 entries")

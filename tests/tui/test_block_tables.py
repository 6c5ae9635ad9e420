"""The block tables: ids, ref counts, elision, and the sum held against the engine's own counts."""

import msgspec
import pytest

from pagedchat.events import Steps
from pagedchat.tui.engine_view import EngineView
from pagedchat.tui.widgets.block_tables import BlockTables
from pagedchat.tui.widgets.line_view import LineBar
from pagedchat.tui.widgets.table_rows import Entry, count_tables, elide, fill_words, table_entries
from pagedchat.tui.words import fit, short_label, sparkline, superscript
from tests.scripted_reports import ScriptedEngine, pressed, story
from tests.tui.inspector_app import WidgetApp, drawn


def entries(*texts: str) -> list[Entry]:
    return [Entry(text, "own") for text in texts]


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


def agreeing(engine: ScriptedEngine) -> tuple[int, int, int, bool]:
    mirror = engine.view.mirror
    assert mirror is not None
    totals = count_tables(mirror)
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
    assert words(elide(entries("000", "001", "002", "003", "004", "005"), width)) == text


def test_entries_tell_sharing_copies_and_host_blocks() -> None:
    mirror = story().view.mirror
    assert mirror is not None
    tale = table_entries(mirror, mirror.sequences[1], {32})
    assert tale[0] == Entry("000²", "shared")
    assert tale[-1] == Entry("032*", "copied")
    assert table_entries(mirror, mirror.sequences[3], set())[0] == Entry("024", "own")
    mirror = swapped().view.mirror
    assert mirror is not None
    assert table_entries(mirror, mirror.sequences[2], set()) == [Entry(f"h{i}", "host") for i in range(3)]


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
        "1 tale   ● 000² 001² … 020² 021² 022² 023² 032* [13/16]",
        "2 tale⑂a ● 000² 001² … 019² 020² 021² 022² 023² 031 [13/16]",
        "3 code   ○ 024 025 026 027 028 029 030 [ 7/16]",
        "4 notes  ● 033 034 035 036 037 038 039 [ 5/16]",
    ]
    assert totals == "✓ 64 entries − 24 shared = 40 used · waste 26 slots"


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


async def test_a_chat_without_blocks_says_so() -> None:
    engine = ScriptedEngine(num_blocks=4)
    engine.core.open(1)
    engine.flush()
    lines, totals = await show(engine.view, (60, 4))
    assert lines[0] == "seq 1 ○ no blocks"
    assert totals.startswith("✓ 0 entries")

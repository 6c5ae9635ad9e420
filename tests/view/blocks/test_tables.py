"""Block tables as rows: entries, elision, which line shows what, and the sum held against the engine's counts."""

import msgspec
import pytest

from pagedchat.view.blocks.table_layout import Spot, TableLayout
from pagedchat.view.blocks.table_rows import Entry, Marks, elide, fill_words, table_entries
from pagedchat.view.blocks.table_totals import count_tables
from tests.scripted_reports import ScriptedEngine, pressed, story


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


def agreeing(engine: ScriptedEngine) -> tuple[int, int, int, bool]:
    mirror = engine.view.mirror
    assert mirror is not None
    totals = count_tables(mirror)
    assert totals.refs == totals.entries == sum(len(seq.block_table) for seq in mirror.sequences.values())
    return totals.entries, totals.used, totals.waste, totals.agrees


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
    assert tale[1] == Entry("001²◊", "shared", 1)
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

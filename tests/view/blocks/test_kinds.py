"""Kinds of blocks in every mode, cells of several blocks, and a picture kept up with random work."""

import random

import msgspec
import pytest

from pagedchat.cache_events import BlockPinned, BlocksReturned, BlocksWithheld, BlockUnpinned, CacheEvent
from pagedchat.engine.mirror import CacheMirror
from pagedchat.view.blocks.kinds import (
    AGE_LIMITS,
    CODES,
    COLOR_MODES,
    KINDS,
    CellKinds,
    ColorMode,
    age_class,
    glyph,
)
from pagedchat.view.blocks.map_layout import BlockLayout
from pagedchat.view.blocks.map_picture import BlockPicture, Look
from pagedchat.view.blocks.pool_kinds import BlockAges, BlockKinds
from tests.scripted_reports import ScriptedEngine, random_workload, story


def mirror_of(engine: ScriptedEngine) -> CacheMirror:
    assert engine.view.mirror is not None
    return engine.view.mirror


def owner(seq_id: int) -> str:
    return f"@{seq_id % 10 or 'a'}"


def tell(engine: ScriptedEngine, *events: CacheEvent) -> None:
    """A report in which nothing ran but these things happened."""
    engine.tell(msgspec.structs.replace(engine.reports[-1], batch=[], events=list(events)))


def kinds(engine: ScriptedEngine, mode: ColorMode, blocks: range) -> str:
    cell_kinds = CellKinds(mirror_of(engine), mode, owner)
    return "".join(glyph(cell_kinds.block(block)) for block in blocks)


# --- one block ----------------------------------------------------------------------------------------


def test_every_kind_has_a_code_and_a_sign_of_one_cell() -> None:
    assert len(CODES) == len(KINDS) < 256
    assert CODES["free"] == 0
    for sign in (*KINDS, "next", "copied"):
        assert len(glyph(sign)) == 1
        assert glyph(sign, ascii_only=True).isascii()


def test_kinds_in_every_mode() -> None:
    engine = story()
    assert kinds(engine, "owner", range(20, 44)) == "▓▓▓▓3333333214444444░░░░"
    assert kinds(engine, "refs", range(20, 44)) == "2222" + "1" * 16 + "░░░░"
    assert kinds(engine, "fill", range(20, 44)) == "██████████▄▓▓██████▄░░░░"
    assert kinds(engine, "hash", range(20, 44)) == "████" + "██████▒" + "▒▒" + "██████▒" + "░░░░"
    assert kinds(engine, "age", range(20, 44)) == "1111" + "1111111" + "00" + "1111110" + "░░░░"


def test_blocks_of_a_closed_chat_stay_as_cached() -> None:
    engine = story()
    engine.core.close(3)
    engine.flush()
    assert kinds(engine, "owner", range(24, 32)) == "······░2"


def test_what_is_cached_keeps_its_age() -> None:
    engine = story()
    engine.core.close(3)
    engine.flush()
    engine.run(6)
    assert kinds(engine, "age", range(24, 30)) == "111111"


def test_pinned_and_withheld_blocks_are_told_apart() -> None:
    engine = story()
    engine.core.close(3)
    engine.flush()
    tell(engine, BlockPinned(24), BlockPinned(0), BlocksWithheld([254, 255]))
    assert kinds(engine, "owner", range(24, 26)) == "◊·"
    assert kinds(engine, "owner", range(2)) == "▓▓"
    assert kinds(engine, "hash", range(2)) == "◊█"
    assert kinds(engine, "refs", range(253, 256)) == "░××"
    tell(engine, BlockUnpinned(24), BlocksReturned([255]))
    assert kinds(engine, "owner", range(24, 26)) == "··"
    assert kinds(engine, "refs", range(253, 256)) == "░×░"


@pytest.mark.parametrize(("age", "index"), [(0, 0), (3, 0), (4, 1), (31, 1), (32, 2), (2047, 3), (2048, 4)])
def test_age_is_told_on_a_log_scale(age: int, index: int) -> None:
    assert age_class(age) == index


# --- several blocks in a cell -------------------------------------------------------------------------


def block_kinds(engine: ScriptedEngine, mode: ColorMode = "owner") -> BlockKinds:
    return BlockKinds(mirror_of(engine), mode, owner)


def test_a_cell_of_several_blocks_shows_the_most_frequent_use_and_the_share_taken() -> None:
    found = block_kinds(story())
    assert found.cell(range(20, 30)) == ("@3", 4)
    assert found.cell(range(38, 60)) == ("@4", 1)
    assert found.cell(range(30, 60)) == ("@4", 2)
    assert found.cell(range(100, 120)) == ("free", 0)


def test_a_cell_without_use_shows_what_is_furthest_from_being_free() -> None:
    engine = story()
    engine.core.close(4)
    engine.flush()
    tell(engine, BlocksWithheld([50, 51]))
    assert block_kinds(engine).cell(range(48, 56)) == ("withheld", 0)
    assert block_kinds(engine).cell(range(33, 48)) == ("cached", 2)
    tell(engine, BlockPinned(33))
    assert block_kinds(engine).cell(range(33, 48)) == ("pinned", 2)


def picture(engine: ScriptedEngine, layout: BlockLayout, mode: ColorMode = "owner") -> BlockPicture:
    lit = engine.view.highlighted
    return BlockPicture(block_kinds(engine, mode), layout, engine.view.fresh_copies(), lit)


def test_marks_tell_copies_what_goes_next_pins_and_what_is_selected() -> None:
    engine = story()
    tell(engine, BlockPinned(0))
    engine.view.highlighted = frozenset({1})
    ones = picture(engine, BlockLayout("cell", 256, 1, 64))
    assert ones.look(0) == Look("shared", "pinned")
    assert ones.look(1) == Look("shared", lit=True)
    assert ones.look(32) == Look("@1", "copied")
    assert [ones.look(cell).mark for cell in range(39, 44)] == ["", "next", "next", "next", ""]
    assert ones.marks == {"pinned", "copied", "next"}


def test_in_a_cell_of_several_blocks_use_hides_what_goes_next_but_not_a_copy() -> None:
    engine = story()
    sixes = picture(engine, BlockLayout("half", 256, 6, 64))
    assert sixes.look(5).mark == "copied"
    assert sixes.look(6) == Look("@4", "", share=3)
    assert sixes.look(7) == Look("free", "next", share=0)


# --- kept up with the engine --------------------------------------------------------------------------


def small_engine(prefix_caching: bool = True) -> ScriptedEngine:
    return ScriptedEngine(
        num_blocks=24,
        block_size=4,
        num_host_blocks=24,
        max_num_batched_tokens=12,
        enable_prefix_caching=prefix_caching,
    )


def test_ages_tell_each_block_once_for_each_class() -> None:
    engine = story()
    mirror = mirror_of(engine)
    ages = BlockAges(mirror)
    class_of = {block: age_class(mirror.num_reports - number) for block, number in mirror.touched.items()}
    while age_class(mirror.num_reports - mirror.touched[0]) < 3:
        tell(engine)
        expected = {
            block
            for block, before in class_of.items()
            if age_class(mirror.num_reports - mirror.touched[block]) != before
        }
        assert ages.advance([]) == expected
        for block in expected:
            class_of[block] += 1
    assert mirror.num_reports > AGE_LIMITS[2]


@pytest.mark.parametrize("mode", COLOR_MODES)
@pytest.mark.parametrize("prefix_caching", [True, False])
def test_a_picture_kept_up_equals_one_made_anew(mode: ColorMode, prefix_caching: bool) -> None:
    engine = small_engine(prefix_caching)
    rng = random.Random(7)
    layouts = [BlockLayout("cell", 24, 1, 8), BlockLayout("half", 24, 3, 3)]
    kept = [picture(engine, layout, mode) for layout in layouts]
    for _ in random_workload(engine, rng, 250):
        engine.view.highlighted = frozenset(rng.sample(range(24), 2))
        follow(engine, kept, mode)
    cached = list(mirror_of(engine).cached_blocks)[:2]
    tell(engine, BlocksWithheld(mirror_of(engine).free_blocks[:2]), *map(BlockPinned, cached))
    follow(engine, kept, mode)
    withheld = len(mirror_of(engine).withheld)
    assert [one.kinds.count("withheld") for one in kept] == [withheld, withheld]


def follow(engine: ScriptedEngine, kept: list[BlockPicture], mode: ColorMode) -> None:
    for one in kept:
        cells = range(one.layout.num_cells)
        before = [one.look(cell) for cell in cells]
        lines = one.update(engine.view.fresh_copies(), engine.view.highlighted)
        anew = picture(engine, one.layout, mode)
        assert [one.look(cell) for cell in cells] == [anew.look(cell) for cell in cells]
        assert lines == {one.layout.line_of(cell) for cell in cells if one.look(cell) != before[cell]}
        counts = {kind: one.kinds.count(kind) for kind in KINDS}
        assert counts == {kind: anew.kinds.count(kind) for kind in KINDS}
        assert sum(counts.values()) == one.layout.num_blocks


def test_reports_that_nobody_remembers_are_followed_all_the_same() -> None:
    engine = story()
    found = picture(engine, BlockLayout("cell", 256, 1, 64))
    first = found.look(32)
    engine.core.close(1)
    engine.flush()
    engine.view.history.clear()
    assert found.update(set(), frozenset()) == {0}
    assert (first.mark, found.look(32).kind) == ("copied", "free")


def test_only_cells_that_were_looked_at_are_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ScriptedEngine(num_blocks=300_000, max_num_batched_tokens=64)
    engine.ask(1, 60)
    engine.ask(2, 600)
    engine.run(2)
    asked: list[int] = []
    block = CellKinds.block
    monkeypatch.setattr(CellKinds, "block", lambda self, block_id: asked.append(block_id) or block(self, block_id))
    found = picture(engine, BlockLayout("cell", 300_000, 1, 100))
    assert len(asked) < 20
    asked.clear()
    found.look(0)
    found.look(200_000)
    engine.run()
    assert found.update(set(), frozenset()) == set()
    assert len(asked) < 20

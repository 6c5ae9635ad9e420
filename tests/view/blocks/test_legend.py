"""What the signs on the map mean, and how many blocks each one counts."""

import msgspec

from pagedchat.cache_events import CacheEvent
from pagedchat.engine.mirror import CacheMirror
from pagedchat.view.blocks.kinds import (
    ColorMode,
    glyph,
)
from pagedchat.view.blocks.legend import legend
from pagedchat.view.blocks.pool_kinds import BlockKinds
from tests.scripted_reports import ScriptedEngine, story


def owner(seq_id: int) -> str:
    return f"@{seq_id % 10 or 'a'}"


def tell(engine: ScriptedEngine, *events: CacheEvent) -> None:
    """A report in which nothing ran but these things happened."""
    engine.tell(msgspec.structs.replace(engine.reports[-1], batch=[], events=list(events)))


def block_kinds(engine: ScriptedEngine, mode: ColorMode = "owner") -> BlockKinds:
    return BlockKinds(mirror_of(engine), mode, owner)


def mirror_of(engine: ScriptedEngine) -> CacheMirror:
    assert engine.view.mirror is not None
    return engine.view.mirror


def words(engine: ScriptedEngine, mode: ColorMode, width: int = 200) -> list[str]:
    items = legend(block_kinds(engine, mode), mode, {"copied", "next"}, width)
    return [f"{glyph(item.sign)} {item.text}".rstrip() for item in items]


def test_the_legend_counts_every_block() -> None:
    engine = story()
    marks = ["* copied", "▼ next out"]
    assert words(engine, "owner") == [
        "▓ shared ×24", "1 ×1", "2 ×1", "3 ×7", "4 ×7", "· cached ×0", "░ free ×216", *marks
    ]  # fmt: skip
    assert words(engine, "refs") == [
        "1 owner ×16", "2 owners ×24", "3 ×0", "+ more ×0", "· cached ×0", "░ free ×216", *marks
    ]  # fmt: skip
    assert words(engine, "hash") == ["▒ not findable ×4", "█ findable ×36", "· cached ×0", "░ free ×216", *marks]
    assert words(engine, "age")[:2] == ["0 <4 steps ×3", "1 <32 ×37"]
    assert words(engine, "fill")[-4:] == ["· cached ×0", "░ free ×216", *marks]


def test_a_narrow_legend_leaves_out_what_is_not_there_then_words_then_the_end() -> None:
    engine = story()
    assert words(engine, "refs", 60) == ["1 owner ×16", "2 owners ×24", "░ free ×216", "* copied", "▼ next out"]
    assert words(engine, "refs", 45) == ["1 ×16", "2 ×24", "░ ×216", "* copied", "▼ next out"]
    assert words(engine, "refs", 16) == ["1 ×16", "2 ×24"]
    assert words(engine, "refs", 1) == ["1 ×16"]

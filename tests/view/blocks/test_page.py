"""One block's page: what is known of it, and its history."""

import json

import msgspec
import pytest

from pagedchat.cache_events import (
    BlockPinned,
    BlocksReturned,
    BlocksWithheld,
    BlockUnpinned,
    CacheEvent,
    PrefixMissed,
)
from pagedchat.view.blocks.facts import block_facts
from pagedchat.view.blocks.history import block_history
from pagedchat.view.blocks.page import page_lines
from pagedchat.view.engine_view import EngineView
from tests.scripted_reports import ScriptedEngine, pressed, story

NASTY = b"\x1b[31mred\x07"


def told_story() -> ScriptedEngine:
    """The story, with texts for its tokens."""
    engine = story()
    engine.view.token_texts = {token: f" w{token - 1000}".encode() for token in range(1000, 1368)}
    engine.view.token_texts |= {7: b" sea", 1368: NASTY, 1369: "漢".encode()[:2]}
    return engine


def tell(engine: ScriptedEngine, *events: CacheEvent) -> None:
    engine.tell(msgspec.structs.replace(engine.reports[-1], batch=[], events=list(events)))


def page(view: EngineView, block_id: int, width: int = 100) -> list[str]:
    assert view.mirror is not None
    return page_lines(block_facts(view, view.mirror, block_id), width)


def history(engine: ScriptedEngine, block_id: int, limit: int = 20) -> list[tuple[int, str]]:
    view = engine.view
    assert view.mirror is not None
    moments = block_history(block_id, view.mirror, reversed(view.history), view.name, limit)
    return [(moment.step, moment.text) for moment in moments]


def test_the_page_of_a_block_that_fills() -> None:
    assert page(told_story().view, 32) == [
        "state    in use · ref 1 (was 0)",
        "fill     13/16 · allocated at step 19",
        "hash     none until it is full and findable",
        "parent   023",
        "slab     576 KiB at 0x1200000",
        "owners   1 tale · logical 24 · tokens 384 to 399",
        'tokens    0 " sea"   1 " sea"   2 " sea"   3 " sea"   4 " sea"   5 " sea"   6 " sea"   7 " sea"',
        '          8 " sea"   9 " sea"  10 " sea"  11 " sea"  12 " sea"  13 ·       14 ·       15 ·',
        "history      19  copy of 031 for 1 tale",
    ]


def test_the_page_of_a_shared_block_tells_every_owner_and_its_hash() -> None:
    lines = page(told_story().view, 23)
    assert lines[0] == "state    in use · ref 2 (was 1)"
    assert lines[2].startswith("hash     ")
    assert len(lines[2]) > 20
    assert lines[3].startswith("parent   022 · #")
    assert lines[5:7] == [
        "owners   1 tale · logical 23 · tokens 368 to 383",
        "         2 tale»a · logical 23 · tokens 368 to 383",
    ]
    assert r'0 "\x1b[31mred\x0~   1 "\xe6\xbc"' in lines[7]
    assert "\x1b" not in "".join(lines)


def test_the_page_of_a_block_nobody_has() -> None:
    lines = page(story().view, 200)
    assert lines[0] == "state    free · ref 0"
    assert lines[-3:] == ["owners   nobody", "tokens   none", "history  nothing that is remembered"]


def test_a_cached_block_still_tells_its_tokens_and_its_parent() -> None:
    engine = told_story()
    engine.core.close(1)
    engine.core.close(2)
    engine.flush()
    tell(engine, BlockPinned(1))
    lines = page(engine.view, 1)
    assert lines[0] == "state    cached · ref 0 (was 1) · pinned"
    assert lines[3].startswith("parent   000 · #")
    assert '0 " w16"' in lines[6]


def test_a_parent_that_was_evicted_is_named_by_its_hash() -> None:
    engine = ScriptedEngine(num_blocks=4, block_size=4)
    engine.ask(1, list(range(9)), max_tokens=1)
    engine.run()
    mirror = engine.view.mirror
    assert mirror is not None
    engine.core.close(1)
    engine.flush()
    mirror.block_hashes[0] = None
    line = page(engine.view, 1)[3]
    assert line.startswith("parent   #")
    assert line.endswith(", no longer in the pool")


def test_tokens_without_a_text_are_told_by_number() -> None:
    assert "0 #1000" in page(story().view, 0)[7]


@pytest.mark.parametrize("width", [1, 12, 30, 200])
def test_slots_flow_into_the_width(width: int) -> None:
    lines = page(told_story().view, 0, width)
    text = " ".join(lines)
    assert all(f'{slot} " w{slot}"' in text for slot in range(16))
    if width >= 30:
        assert max(len(line) for line in lines if '" w' in line) <= width


def test_json_holds_all_of_it() -> None:
    view = told_story().view
    assert view.mirror is not None
    facts = json.loads(block_facts(view, view.mirror, 32).as_json())
    assert (facts["block_id"], facts["ref_count"], facts["was"], facts["allocated"]) == (32, 1, 0, 19)
    assert (facts["parent"], facts["offset"], facts["num_bytes"]) == (23, 32 * 589_824, 589_824)
    assert facts["owners"] == [{"seq_id": 1, "name": "1 tale", "block_idx": 24}]
    assert facts["slots"][0] == {"token_id": 7, "text": '" sea"'}
    assert facts["history"] == [[19, "copy of 031 for 1 tale", 0, True]]


def test_the_history_of_a_block_knows_forks_that_do_not_name_it() -> None:
    engine = story()
    engine.core.close(1)
    engine.core.close(2)
    engine.flush()
    assert history(engine, 0) == [
        (30, "−ref 2 tale»a (dropped)"),
        (30, "−ref 1 tale (dropped)"),
        (19, "+ref 2 tale»a (fork of 1 tale)"),
        (1, "full: findable by its hash"),
        (1, "allocated to 1 tale"),
    ]
    assert history(engine, 31, limit=2) == [(30, "−ref 2 tale»a (dropped)"), (19, "−ref 1 tale (copied → 032)")]


def test_the_history_of_a_block_through_swap_and_eviction() -> None:
    engine = pressed("swap")
    assert history(engine, 7) == [
        (15, "+ref 3 tale» (swapped in)"),
        (9, "full: findable by its hash"),
        (9, "copy of 005 for 1 tale"),
    ]
    assert history(engine, 5) == [
        (14, "allocated to 1 tale"),
        (14, "−ref 3 tale» (swapped out)"),
        (9, "−ref 1 tale (copied → 007)"),
        (9, "+ref 3 tale» (fork of 1 tale)"),
        (6, "allocated to 1 tale"),
    ]


def test_the_history_of_a_block_through_the_prefix_cache() -> None:
    engine = ScriptedEngine(num_blocks=3, block_size=4)
    engine.ask(1, list(range(9)), max_tokens=1)
    engine.run()
    engine.core.close(1)
    engine.ask(2, list(range(9)), max_tokens=1)
    engine.run()
    engine.core.close(2)
    engine.ask(3, 11, max_tokens=1)
    engine.run()
    assert history(engine, 1) == [
        (3, "full: findable by its hash"),
        (3, "allocated to seq 3"),
        (3, "evicted from the prefix cache: a block was needed"),
        (3, "−ref seq 2 (dropped)"),
        (2, "+ref seq 2 (prefix hit)"),
        (2, "−ref seq 1 (dropped)"),
        (1, "full: findable by its hash"),
        (1, "allocated to seq 1"),
    ]


def test_the_history_of_a_block_tells_pins_limits_and_misses() -> None:
    engine = story()
    tell(engine, BlockPinned(0), BlocksWithheld([255, 254]))
    tell(engine, PrefixMissed(4, 5, 17, 18, 0), PrefixMissed(4, 16, 17, 18, 0), BlockUnpinned(0))
    tell(engine, BlocksReturned([254]))
    assert history(engine, 0, limit=3) == [
        (30, "unpinned"),
        (30, "not shared with 4 notes: slot 5 differs"),
        (30, "pinned: not to be evicted"),
    ]
    assert history(engine, 254) == [(30, "given back to the pool"), (30, "withheld: the pool was limited")]
    assert page(engine.view, 255)[0] == "state    withheld by the limit · ref 0"

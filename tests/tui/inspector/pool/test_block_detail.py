"""One block looked at closely: what is known of it, its history, the keys, and how it looks."""

import json
from collections.abc import Callable

import msgspec
import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Input, Static

from pagedchat.events import (
    BlockPinned,
    BlocksReturned,
    BlocksWithheld,
    BlockUnpinned,
    CacheEvent,
    EngineDied,
    PrefixMissed,
)
from pagedchat.tui.inspector.pool.block_detail import BlockDetail
from pagedchat.view.blocks.facts import block_facts
from pagedchat.view.blocks.history import block_history
from pagedchat.view.blocks.neighbours import in_chat, same_owners
from pagedchat.view.blocks.page import page_lines
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.token_text import quote_token
from pagedchat.view.sentences.words import cut
from tests.scripted_reports import ScriptedEngine, pressed, story

SnapCompare = Callable[..., bool]
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


# --- a token's text -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        (b" and", '" and"'),
        (b'say "hi"\\', r'"say \"hi\"\\"'),
        (b"\n\t\r", r'"\n\t\r"'),
        (NASTY, r'"\x1b[31mred\x07"'),
        ("漢字é".encode(), '"漢字é"'),
        ("漢".encode()[:2], r'"\xe6\xbc"'),
        ("a\u202eb\u200bc\U000e0041".encode(), r'"a\u202eb\u200bc\U000e0041"'),
        (b"", '""'),
    ],
)
def test_a_token_is_quoted_so_that_nothing_is_hidden_or_obeyed(text: bytes, quoted: str) -> None:
    assert quote_token(text) == quoted


def test_long_texts_are_cut_by_cells() -> None:
    assert cut('"abc"', 5) == '"abc"'
    assert cut('"abcd"', 5) == '"abc~'
    assert cut('"漢字"', 5) == '"漢 ~'


# --- what is known ------------------------------------------------------------------------------------


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
        "         2 tale⑂a · logical 23 · tokens 368 to 383",
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


# --- history ------------------------------------------------------------------------------------------


def test_the_history_of_a_block_knows_forks_that_do_not_name_it() -> None:
    engine = story()
    engine.core.close(1)
    engine.core.close(2)
    engine.flush()
    assert history(engine, 0) == [
        (30, "−ref 2 tale⑂a (dropped)"),
        (30, "−ref 1 tale (dropped)"),
        (19, "+ref 2 tale⑂a (fork of 1 tale)"),
        (1, "full: findable by its hash"),
        (1, "allocated to 1 tale"),
    ]
    assert history(engine, 31, limit=2) == [(30, "−ref 2 tale⑂a (dropped)"), (19, "−ref 1 tale (copied → 032)")]


def test_the_history_of_a_block_through_swap_and_eviction() -> None:
    engine = pressed("swap")
    assert history(engine, 7) == [
        (15, "+ref 3 tale⑂ (swapped in)"),
        (9, "full: findable by its hash"),
        (9, "copy of 005 for 1 tale"),
    ]
    assert history(engine, 5) == [
        (14, "allocated to 1 tale"),
        (14, "−ref 3 tale⑂ (swapped out)"),
        (9, "−ref 1 tale (copied → 007)"),
        (9, "+ref 3 tale⑂ (fork of 1 tale)"),
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
        (3, "evicted from the prefix cache"),
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


# --- neighbours ---------------------------------------------------------------------------------------


def test_neighbours_in_a_chat_stay_with_the_chat() -> None:
    mirror = story().view.mirror
    assert mirror is not None
    assert in_chat(mirror, 23, 1, None) == (32, 1)
    assert in_chat(mirror, 23, 1, 2) == (31, 2)
    assert in_chat(mirror, 32, -1, 1) == (23, 1)
    assert in_chat(mirror, 0, -1, None) is None
    assert in_chat(mirror, 200, 1, None) is None


def test_blocks_of_the_same_owners_go_round() -> None:
    mirror = story().view.mirror
    assert mirror is not None
    assert same_owners(mirror, 0) == 1
    assert same_owners(mirror, 23) == 0
    assert same_owners(mirror, 32) is None
    assert same_owners(mirror, 30) == 24
    assert same_owners(mirror, 200) is None


# --- the screen ---------------------------------------------------------------------------------------


class DetailApp(App[None]):
    """Keeps what the screen asks for."""

    ascii = False

    def __init__(self, view: EngineView, block_id: int) -> None:
        super().__init__()
        self.animation_level = "none"
        self.detail = BlockDetail(view, block_id)
        self.asked: list[tuple[str, int, bool]] = []

    def on_mount(self) -> None:
        self.push_screen(self.detail)

    def on_block_detail_pin_toggled(self, message: BlockDetail.PinToggled) -> None:
        self.asked.append(("pin", message.block_id, message.pinned))

    def on_block_detail_evict_requested(self, message: BlockDetail.EvictRequested) -> None:
        self.asked.append(("evict", message.block_id, False))

    @property
    def text(self) -> str:
        return str(self.detail.query_one(Static).content)


async def test_keys_walk_by_id_along_the_chat_and_among_the_owners_blocks() -> None:
    app = DetailApp(story().view, 22)
    async with app.run_test(size=(120, 40)) as pilot:
        seen = []
        for key in ("l", "right", "h", "j", "k", "s", "s", "left", "left"):
            await pilot.press(key)
            seen.append(app.detail.block_id)
        assert seen == [23, 24, 23, 32, 23, 0, 1, 0, 0]
        assert app.text.startswith("state    in use · ref 2")


async def test_g_asks_for_a_number_and_refuses_one_beyond_the_pool() -> None:
    app = DetailApp(story().view, 22)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("g", *"256", "enter")
        assert "There is no block 256: the pool has 0 to 255." in [
            str(static.content) for static in app.screen.query(Static)
        ]
        app.screen.query_one(Input).value = "41"
        await pilot.press("enter")
        await pilot.pause()
        assert app.screen is app.detail
        assert app.detail.block_id == 41
        assert app.text.startswith("state    free")


async def test_b_and_x_ask_for_pins_and_evictions_in_the_present_only() -> None:
    engine = story()
    app = DetailApp(engine.view, 0)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("b", "x")
        tell(engine, BlockPinned(0))
        await pilot.press("b")
        asked = [("pin", 0, True), ("evict", 0, False), ("pin", 0, False)]
        assert app.asked == asked
        assert engine.view.live is not None
        engine.view.show_past(engine.view.live)
        await pilot.press("b", "x")
        assert app.asked == asked


async def test_y_copies_json() -> None:
    app = DetailApp(story().view, 32)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("y")
        assert json.loads(app.clipboard)["block_id"] == 32


async def test_the_page_follows_the_engine_and_the_past_and_closes_with_it() -> None:
    engine, past = story(), ScriptedEngine(num_blocks=256)
    app = DetailApp(engine.view, 33)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "ref 1" in app.text
        engine.core.close(4)
        engine.flush()
        app.detail._show()
        assert "cached · ref 0 (was 1)" in app.text
        assert past.view.live is not None
        engine.view.show_past(past.view.live)
        app.detail._show()
        assert app.text.startswith("state    free · ref 0")
        engine.view.apply(EngineDied(1, "", restarting=True))
        app.detail._show()
        await pilot.pause()
        assert app.screen is not app.detail


async def test_an_engine_that_dies_while_a_number_is_asked_for_closes_nothing_else() -> None:
    engine = story()
    app = DetailApp(engine.view, 33)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("g")
        asking = app.screen
        engine.view.apply(EngineDied(1, "", restarting=True))
        app.detail._show()
        app.detail._show()
        assert app.screen is asking
        await pilot.press("escape")
        app.detail._show()
        app.detail._show()
        await pilot.pause()
        assert app.screen is app.screen_stack[0]


async def test_markup_in_names_and_tokens_is_text() -> None:
    engine = story()
    engine.view.labels = {1: "1 [red]x[/red]", 2: "2 [/]"}
    engine.view.token_texts = {7: b"[bold]"}
    app = DetailApp(engine.view, 32)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "1 [red]x[/red] · logical 24" in app.text
        assert '0 "[bold]"' in app.text


def test_a_block_looks(snap_compare: SnapCompare) -> None:
    assert snap_compare(DetailApp(told_story().view, 23), terminal_size=(120, 30), run_before=_settle)


def test_a_block_in_ascii_and_a_small_terminal_looks(snap_compare: SnapCompare) -> None:
    app = DetailApp(told_story().view, 32)
    app.ascii = True
    assert snap_compare(app, terminal_size=(60, 16), run_before=_settle)


async def _settle(pilot: Pilot[None]) -> None:
    await pilot.pause()
    await pilot.pause()

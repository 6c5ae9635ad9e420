"""One step looked at closely: its batch with the text that it made, what it moved, its neighbours."""

from collections.abc import Callable

import msgspec
from textual.app import App
from textual.pilot import Pilot

from pagedchat.events import StepReport
from pagedchat.tui.inspector.timeline.step_detail import StepDetail
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.step_story import find_report, step_story
from tests.scripted_reports import ScriptedEngine, pressed, story
from tests.tui.widget_app import drawn

SnapCompare = Callable[..., bool]


class DetailApp(App[None]):
    def __init__(self, view: EngineView, step: int, *, plain: bool = False) -> None:
        super().__init__()
        self.view, self.step, self.ascii = view, step, plain
        self.animation_level = "none"
        self.went: list[int | None] = []

    def on_mount(self) -> None:
        self.push_screen(StepDetail(self.view, self.step), self.went.append)

    @property
    def detail(self) -> StepDetail:
        assert isinstance(self.screen, StepDetail)
        return self.screen


def lines(engine: ScriptedEngine, step: int) -> list[str]:
    report = find_report(engine.view, step)
    assert report is not None
    return step_story(engine.view, report)


def test_batch_moves_queues_pool_and_events_are_told() -> None:
    engine = story()
    engine.view.token_texts[7] = b" sea\n"
    assert lines(engine, 19) == [
        'batch    1 tale         decode     1 → " sea⏎"',
        '         3 code         decode     1 → " sea⏎"',
        '         2 tale⑂a       decode     1 → " sea⏎"',
        '         4 notes        prefill   90 → " sea⏎"',
        "moved    copied 031 → 032, 1 slot",
        "queues   4 running · 0 waiting · 0 swapped · 0 parked",
        "pool     217 free + 0 cached + 39 in use + 0 withheld = 256",
        "         24 blocks shared · 63 table entries · 0 pinned",
        "         0 of 16 host blocks in use",
        "events   FORK     1 tale → 2 tale⑂a: 25 blocks shared, 0 copied",
        "         OPEN     4 notes",
        "         EXTEND   4 notes: +90 prompt tokens",
        "         COW      1 tale wrote 031 (ref 2) → 032, 1 slot",
        "         RUN      2 tale⑂a enters the batch",
        '         MISS     4 notes differs at token 0: "#4000" not "#3000" (block 024)',
        "         ALLOC    4 notes +6: 033 034 035 036 …",
        "         RUN      4 notes enters the batch",
    ]


def test_a_prefill_in_parts_has_nothing_sampled_yet() -> None:
    assert lines(story(), 1)[0] == "batch    1 tale         prefill  128 → nothing sampled yet"


def test_swaps_are_told_with_what_was_copied() -> None:
    engine = pressed("swap")
    assert "moved    swapped out 5 blocks, 5 copied to host memory" in lines(engine, 14)
    assert "moved    swapped in 5 blocks, 0 copied from host memory" in lines(engine, 15)


def test_a_quiet_step_says_that_nothing_happened() -> None:
    assert lines(story(), 30)[-1] == "events   no block and no sequence changed hands"


def test_events_that_are_forgotten_are_not_passed_off_as_none() -> None:
    engine = story()
    engine.view.lines.clear()
    assert lines(engine, 19)[-1] == "events   no longer kept"


def test_a_step_is_found_though_verbs_came_after_it() -> None:
    engine = story()
    engine.core.close(1)
    engine.flush()
    report = find_report(engine.view, 30)
    assert report is not None
    assert len(report.batch) == 3
    assert find_report(engine.view, 31) is None


async def test_comma_and_full_stop_turn_to_the_neighbours() -> None:
    app = DetailApp(story().view, 19)
    async with app.run_test(size=(110, 40)) as pilot:
        await pilot.pause()
        await pilot.press("comma", "left")
        assert app.detail.step == 17
        await pilot.press("full_stop", "right", "l", "full_stop")
        assert app.detail.step == 21


async def test_there_is_no_step_past_the_last_or_before_the_first() -> None:
    app = DetailApp(story().view, 28)
    async with app.run_test(size=(110, 40)) as pilot:
        await pilot.press(*["full_stop"] * 4)
        assert app.detail.step == 30
    app = DetailApp(story().view, 3)
    async with app.run_test(size=(110, 40)) as pilot:
        await pilot.press(*["comma"] * 4)
        assert app.detail.step == 1
        assert drawn(app.detail._phases)[1] == "■ forward 3.1  ■ sample .4"


async def test_g_asks_to_go_there_and_escape_for_nothing() -> None:
    for key, went in (("g", 19), ("escape", None), ("q", None)):
        app = DetailApp(story().view, 19)
        async with app.run_test(size=(110, 40)) as pilot:
            await pilot.pause()
            await pilot.press(key)
            await pilot.pause()
            assert app.went == [went]


async def test_y_copies_the_report_as_json() -> None:
    app = DetailApp(story().view, 19)
    async with app.run_test(size=(110, 40)) as pilot:
        await pilot.pause()
        await pilot.press("y")
        assert msgspec.json.decode(app.clipboard, type=StepReport) == find_report(app.view, 19)


async def test_a_forgotten_step_says_so() -> None:
    app = DetailApp(story().view, 4000)
    async with app.run_test(size=(110, 40)) as pilot:
        await pilot.pause()
        assert str(app.detail._text.render()) == "This step is no longer kept."
        await pilot.press("comma")
        assert app.detail.step == 30


async def test_a_terminal_without_glyphs_gets_ascii_only() -> None:
    engine = story()
    engine.view.token_texts[7] = b" sea"
    app = DetailApp(engine.view, 19, plain=True)
    async with app.run_test(size=(110, 40)) as pilot:
        await pilot.pause()
        assert str(app.detail._text.render()).isascii()
        assert "".join(drawn(app.detail._phases)).isascii()


def test_a_step_looks(snap_compare: SnapCompare) -> None:
    engine = pressed("swap")
    engine.view.token_texts.update({7: b" sea", 2000: b"def"})

    async def settle(pilot: Pilot[None]) -> None:
        await pilot.pause()

    assert snap_compare(DetailApp(engine.view, 14), terminal_size=(110, 34), run_before=settle)

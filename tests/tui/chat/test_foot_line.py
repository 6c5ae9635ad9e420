"""The one line of last events on the chats' screen."""

from pagedchat.tui.chat.foot_line import EventTicker
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.event_lines import EventLine
from tests.scripted_reports import ScriptedEngine, pressed, story
from tests.tui.widget_app import WidgetApp, drawn


def ticker(view: EngineView, *, plain: bool = False) -> tuple[WidgetApp, EventTicker]:
    widget = EventTicker(view)
    app = WidgetApp(widget)
    app.ascii = plain  # type: ignore[attr-defined]
    return app, widget


async def line(app: WidgetApp, widget: EventTicker, width: int = 150) -> str:
    async with app.run_test(size=(width, 3)) as pilot:
        widget.refresh_view()
        await pilot.pause()
        return drawn(widget)[0].strip()


async def test_the_newest_events_that_fit_come_first() -> None:
    told = await line(*ticker(pressed("swap").view))
    assert told.startswith("15 RESUME 3 tale»: back from host memory with 5 blocks, nothing to recompute · 15 SWAP")
    assert "ALLOC" not in told
    assert (await line(*ticker(pressed("swap").view), width=90)).count(" · ") == 0


async def test_before_the_first_event_it_says_so() -> None:
    assert await line(*ticker(ScriptedEngine(num_blocks=4).view)) == "no cache events yet"


async def test_events_that_have_no_word_here_change_why_there_is_nothing_to_tell() -> None:
    engine = ScriptedEngine(num_blocks=4)
    app, widget = ticker(engine.view)
    async with app.run_test(size=(150, 3)) as pilot:
        widget.refresh_view()
        await pilot.pause()
        assert drawn(widget)[0].strip() == "no cache events yet"
        engine.ask(1, 3)
        engine.run()
        widget.refresh_view()
        await pilot.pause()
        assert drawn(widget)[0].strip() == "nothing shared, copied or evicted so far"


async def test_another_moment_has_its_own_events_even_with_as_many_lines() -> None:
    engine = story()
    app, widget = ticker(engine.view)
    async with app.run_test(size=(150, 3)) as pilot:
        widget.refresh_view()
        await pilot.pause()
        past = pressed("swap").view.live
        assert past is not None
        past.narrator.num_lines = engine.view.num_lines
        engine.view.show_past(past)
        widget.refresh_view()
        await pilot.pause()
        assert drawn(widget)[0].strip().startswith("15 RESUME")


async def test_a_terminal_without_glyphs_gets_ascii_only() -> None:
    told = await line(*ticker(story().view, plain=True))
    assert "wrote 031 (ref 2) > 032" in told


async def test_what_was_told_stays_however_much_else_happens() -> None:
    engine = pressed("swap")
    app, widget = ticker(engine.view)
    async with app.run_test(size=(150, 3)) as pilot:
        widget.refresh_view()
        await pilot.pause(1 / 60)
        told = drawn(widget)[0]
        live = engine.view.live
        assert live is not None
        plain = EventLine(16, "STEP", "batch 1, 1 token", (), ())
        for _ in range(1000):
            live.lines.append(plain)
            live.narrator.num_lines += 1
        widget.refresh_view()
        await pilot.pause(1 / 60)
        assert drawn(widget)[0] == told
        live.lines.append(plain._replace(kind="EVICT", text="a block"))
        live.narrator.num_lines += 1
        widget.refresh_view()
        await pilot.pause(1 / 60)
        assert drawn(widget)[0].strip().startswith("16 EVICT a block")


async def test_blocks_that_are_only_allocated_are_not_called_no_events() -> None:
    engine = ScriptedEngine(num_blocks=4)
    app, widget = ticker(engine.view)
    live = engine.view.live
    assert live is not None
    live.lines.append(EventLine(1, "ALLOC", "a block"))
    live.narrator.num_lines += 1
    assert await line(app, widget) == "nothing shared, copied or evicted so far"

"""Selected text lights up blocks, a chosen block lights up text, and the past takes the place of the turns."""

import pytest
from textual.app import App, ComposeResult
from textual.geometry import Offset
from textual.selection import Selection

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.chat.session import ChatSession
from pagedchat.tui.chat.chat_grid import ChatGrid
from pagedchat.tui.chat.chat_pane import ChatPane
from pagedchat.tui.chat.composer import Composer
from pagedchat.tui.messages import EngineStateChanged, PromptSubmitted
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.chats.transcript_rows import GUTTER
from pagedchat.view.options import UiOptions
from pagedchat.view.state.engine import EngineState
from tests.chat_on_engine import ask, told_engine
from tests.scripted_reports import ScriptedEngine
from tests.tui.widget_app import drawn

PROMPT = "Tell me of a boat that left before dawn"


class GridApp(App[None]):
    """Two chats over one beginning, the second one a fork."""

    def __init__(self) -> None:
        super().__init__()
        self.animation_level = "none"
        self.engine = told_engine()
        self.view = self.engine.view
        self.desk = ChatDesk(lambda command: None, UiOptions())
        self.changes = 0
        self.prompts: list[str] = []
        self.first = self.desk.new()
        self.first.name = "tale"
        ask(self.engine, self.first, PROMPT, 30)
        self.second = self._fork()
        self.view.labels = self.desk.labels
        self.grid = ChatGrid(self.desk, self.view, PromptHistory())

    def _fork(self) -> ChatSession:
        self.engine.core.fork(1, 2)
        self.engine.flush()
        return self.desk.fork(self.first)

    def compose(self) -> ComposeResult:
        yield self.grid

    def on_mount(self) -> None:
        self.grid.arrange_panes(1, 130, 24)
        self.call_after_refresh(self.grid.refresh_view)

    def on_engine_state_changed(self, message: EngineStateChanged) -> None:
        self.changes += 1

    def on_prompt_submitted(self, message: PromptSubmitted) -> None:
        self.prompts.append(message.prompt)

    def pane(self, session_id: int) -> ChatPane:
        pane = self.grid.pane(session_id)
        assert pane is not None
        return pane

    def table(self) -> list[int]:
        assert self.view.mirror is not None
        return self.view.mirror.sequences[1].block_table


def past_of(engine: ScriptedEngine, num_reports: int) -> EngineState:
    assert engine.view.live is not None
    past = EngineState(engine.view.live.info, engine.view.name)
    for report in engine.reports[:num_reports]:
        past.fold(report)
    return past


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> GridApp:
    monkeypatch.setattr(Composer, "cursor_blink", False)
    return GridApp()


async def test_selected_text_highlights_its_blocks(app: GridApp) -> None:
    async with app.run_test(size=(130, 24)) as pilot:
        await pilot.pause()
        transcript = app.pane(1).transcript
        start = GUTTER + PROMPT.index("of a boat")
        await pilot.mouse_down(transcript, offset=(start, 0))
        await pilot.hover(transcript, offset=(start + 8, 0))
        await pilot.mouse_up(transcript, offset=(start + 8, 0))
        await pilot.pause()
        assert app.screen.get_selected_text() == "of a boat"
        first = len("User: ") + PROMPT.index("of a boat")
        assert app.view.highlighted == {app.table()[at // 8] for at in range(first, first + 9)}
        assert app.changes > 0
        app.screen.clear_selection()
        await pilot.pause()
        assert app.view.highlighted == frozenset()


async def test_without_a_selection_others_may_highlight(app: GridApp) -> None:
    async with app.run_test(size=(130, 24)) as pilot:
        await pilot.pause()
        app.view.highlighted = frozenset({1})
        app.grid.refresh_view()
        assert app.view.highlighted == {1}
        app.screen.selections = {app.pane(1).transcript: Selection(Offset(GUTTER, 0), Offset(GUTTER + 4, 0))}
        await pilot.pause()
        assert app.view.highlighted == {app.table()[0], app.table()[1]}
        app.view.highlighted = frozenset({2})
        app.screen.clear_selection()
        await pilot.pause()
        assert app.view.highlighted == {2}


async def test_the_highlight_follows_a_copy_on_write(app: GridApp) -> None:
    async with app.run_test(size=(130, 24)) as pilot:
        await pilot.pause()
        end = len(app.pane(1).transcript._rows) - 1
        app.screen.selections = {app.pane(1).transcript: Selection(Offset(0, end), None)}
        await pilot.pause()
        before = app.view.highlighted
        assert before
        ask(app.engine, app.first, "And then?", 3)
        app.grid.refresh_view()
        assert app.view.highlighted
        assert app.view.highlighted <= set(app.table())


async def test_a_chosen_block_lights_its_text_in_every_chat_that_holds_it(app: GridApp) -> None:
    async with app.run_test(size=(130, 24)) as pilot:
        await pilot.pause()
        for pane in app.grid.panes:
            pane.light_block(app.table()[1])
            assert lit_text(pane) == "ll me of"
        app.pane(2).light_block(None)
        assert lit_text(app.pane(2)) == ""
        await pilot.resize_terminal(60, 24)
        app.grid.arrange_panes(1, 60, 24)
        await pilot.pause()
        assert lit_text(app.pane(1)).replace("\n", "") == "ll me of"


async def test_light_stays_with_the_text_while_the_chat_goes_on(app: GridApp) -> None:
    async with app.run_test(size=(130, 24)) as pilot:
        await pilot.pause()
        pane = app.pane(1)
        pane.light_block(app.table()[1])
        ask(app.engine, app.first, "And then?", 40)
        app.grid.refresh_view()
        await pilot.pause()
        assert lit_text(pane) == "ll me of"
        app.engine.core.close(1)
        app.engine.flush()
        app.grid.refresh_view()
        assert lit_text(pane) == ""


async def test_lit_text_out_of_sight_is_scrolled_to_only_when_asked(app: GridApp) -> None:
    async with app.run_test(size=(130, 12)) as pilot:
        for prompt in ("one", "two", "three", "four"):
            ask(app.engine, app.first, prompt, 60)
        app.grid.refresh_view()
        await pilot.pause()
        transcript = app.pane(1).transcript
        bottom = transcript.scroll_offset.y
        assert bottom > 0
        app.pane(1).light_block(app.table()[1])
        await pilot.pause()
        assert transcript.scroll_offset.y == bottom
        app.pane(1).light_block(app.table()[1], reveal=True)
        await pilot.pause()
        assert transcript.scroll_offset.y == 0


async def test_nothing_is_looked_up_while_nothing_is_chosen(app: GridApp, monkeypatch: pytest.MonkeyPatch) -> None:
    async with app.run_test(size=(130, 24)) as pilot:
        await pilot.pause()
        monkeypatch.setattr("pagedchat.tui.chat.chat_pane.chat_tokens", pytest.fail)
        monkeypatch.setattr("pagedchat.tui.chat.transcript.spans_by_row", pytest.fail)
        ask(app.engine, app.first, "And then?", 10)
        app.grid.refresh_view()
        await pilot.pause()
        assert "And then?" in "\n".join(drawn(app.pane(1).transcript))


async def test_the_past_stands_in_the_place_of_the_turns(app: GridApp) -> None:
    async with app.run_test(size=(130, 24)) as pilot:
        await pilot.pause()
        app.view.show_past(past_of(app.engine, 3))
        app.grid.refresh_view()
        await pilot.pause()
        pane = app.pane(1)
        assert "".join(drawn(pane.transcript)).startswith("User: Tell me of a boat")
        assert "as of step 3" in str(pane.border_title)
        pane.light_block(0)
        assert lit_text(pane) == "User: Te"
        assert drawn(app.pane(2).transcript)[0] == "This chat had no text at this step."
        app.view.show_live()
        app.grid.refresh_view()
        await pilot.pause()
        assert drawn(pane.transcript)[0].startswith("you │ Tell me")
        assert "as of step" not in str(pane.border_title)


async def test_the_past_takes_commands_but_no_prompts(app: GridApp) -> None:
    async with app.run_test(size=(130, 24)) as pilot:
        await pilot.pause()
        app.view.show_past(past_of(app.engine, 3))
        app.grid.refresh_view()
        app.pane(1).take_focus()
        await pilot.press(*"hi", "enter")
        assert app.prompts == []
        assert app.pane(1).composer.text == "hi"
        app.pane(1).composer.text = "/goto live"
        await pilot.press("enter")
        await pilot.pause()
        assert app.pane(1).composer.text == ""


async def test_rows_are_as_wide_as_the_pane_whoever_asked_for_its_size_first(app: GridApp) -> None:
    async with app.run_test(size=(130, 24)) as pilot:
        await pilot.pause()
        for width in (60, 130):
            app.grid.styles.width = width
            _ = app.pane(1).transcript.size  # asked for before the layout: Textual then sends no Resize
            await pilot.pause()
            app.grid.refresh_view()
            transcript = app.pane(1).transcript
            assert {transcript.render_line(y).cell_length for y in range(3)} == {transcript.size.width}


async def test_our_own_signs_in_a_pane_can_be_ascii(app: GridApp) -> None:
    app.ascii = True  # type: ignore[attr-defined]
    async with app.run_test(size=(130, 24)) as pilot:
        await pilot.pause()
        ask(app.engine, app.second, "And then?", 3)
        app.grid.refresh_view()
        await pilot.pause()
        lines = drawn(app.pane(2).transcript)
        assert lines[0].startswith("you | Tell me")
        assert any(line.startswith("> from 1 tale") for line in lines)
        assert all(line.isascii() for line in lines)


def lit_text(pane: ChatPane) -> str:
    """The characters that are drawn lit, row by row."""
    transcript = pane.transcript
    rows = sorted(transcript._lit_spans.items())
    return "\n".join(
        "".join(transcript._rows[index].text[start:end] for start, end in spans) for index, spans in rows
    )

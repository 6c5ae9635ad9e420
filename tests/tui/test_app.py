"""The whole screen against a scripted engine: keys in, commands and text out."""

import asyncio
import gc

import msgspec
import pytest
from textual.widgets import TextArea

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.errors import PagedChatError
from pagedchat.events import EngineDied, EngineFailed, LoadProgress, RequestFailed, RunState, TextDelta
from pagedchat.service.commands import Close, Fork, Generate, Pause, Resume, StepOnce, Stop
from pagedchat.tui.app import PagedChatApp, UiOptions, run_app
from pagedchat.tui.chat.chat_pane import ChatPane
from pagedchat.tui.chat.engine_status import StatusBanner
from pagedchat.tui.help import HelpScreen
from pagedchat.tui.kit.front_screens import ConfirmScreen, TooSmallScreen
from tests.fakes_tui import READY, FakeEngineLink, finished, prefill

WIDE = (120, 40)


@pytest.fixture
def link():
    return FakeEngineLink()


@pytest.fixture
def make_app(link):
    def make(sessions=2, history=None, **options):
        app = PagedChatApp(link, UiOptions(sessions=sessions, **options), history or PromptHistory())
        app.animation_level = "none"
        return app

    return make


async def settle(pilot):
    """Let events through and have them drawn, without waiting for the timer."""
    await pilot.pause()
    for _ in range(30):
        await asyncio.sleep(0)
    pilot.app.redraw()
    await pilot.pause(1 / 60)  # Textual paints at most this often


async def write(pilot, text):
    pilot.app.focused.insert(text)
    await pilot.pause()


def panes(app):
    return [pane for pane in app.screen.query(ChatPane) if pane.display]


def pane(app, number):
    return next(pane for pane in app.chats.query(ChatPane) if pane.session.session_id == number)


def drawn(widget):
    """What a widget has on the screen, as text."""
    region = widget.region
    lines = [strip.text for strip in widget.app.screen._compositor.render_strips()]
    return "\n".join(
        line[region.x : region.right] for line in lines[region.y : region.bottom]
    )  # the texts of these tests are one cell a character


async def test_engine_starts_after_the_first_frame(make_app, link):
    app = make_app()
    assert not link.started
    async with app.run_test(size=WIDE) as pilot:
        await settle(pilot)
        assert link.started


async def test_enter_sends_and_the_reply_streams(make_app, link):
    app = make_app(overrides=SamplingOverrides(temperature=0.5))
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await write(pilot, "hello there")
        await pilot.press("enter")
        generate = link.generates()[0]
        assert (generate.session_id, generate.turns[-1].text) == (1, "hello there")
        assert generate.overrides == SamplingOverrides(temperature=0.5)
        link.reply(generate, "good morning", finish=False)
        await settle(pilot)
        text = drawn(pane(app, 1).transcript)
        assert "you ▏ hello there" in text
        assert "ai  ▏ good morning▌" in text
        link.say(TextDelta(1, 1, " to you", 4), finished(generate))
        await settle(pilot)
        assert "good morning to you " in drawn(pane(app, 1).transcript)


async def test_text_is_neither_markup_nor_escape(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await write(pilot, "hi")
        await pilot.press("enter")
        link.reply(link.generates()[0], "[bold]x[/bold] [@click=app.quit]y[/] \x1b[2J\x1b]0;t\x07z")
        await settle(pilot)
        assert "[bold]x[/bold] [@click=app.quit]y[/] z" in drawn(pane(app, 1).transcript)


async def test_typing_needs_no_focus(make_app):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        app.screen.set_focus(None)
        await pilot.press("h", "i")
        assert pane(app, 1).composer.text == "hi"


@pytest.mark.parametrize("key", ["ctrl+j", "alt+enter", "shift+enter"])
async def test_newline_keys_do_not_send(make_app, link, key):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("a", key, "b")
        assert pane(app, 1).composer.text == "a\nb"
        assert link.generates() == []


async def test_paste_never_sends_and_is_sanitised(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        from textual.events import Paste

        app.screen.focused.post_message(Paste("one\r\ntwo\x1b[31m\n"))
        await pilot.pause()
        assert pane(app, 1).composer.text == "one\ntwo\n"
        assert link.generates() == []


async def test_prompt_sent_while_writing_is_queued_and_sent_after(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await pilot.press("a", "enter")
        link.reply(link.generates()[0], "text", finish=False)
        await settle(pilot)
        await pilot.press("b", "enter", "c", "enter")
        await settle(pilot)
        assert len(link.generates()) == 1
        assert "queued 2" in drawn(pane(app, 1))
        await pilot.press("up")
        assert pane(app, 1).composer.text == "c"
        link.say(finished(link.generates()[0]))
        await settle(pilot)
        assert [turn.text for turn in link.generates()[1].turns] == ["a", "text", "b"]
        assert "queued" not in drawn(pane(app, 1))


async def test_escape_stops_and_keeps_the_text(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await pilot.press("a", "enter")
        link.reply(link.generates()[0], "half a", finish=False)
        await settle(pilot)
        await pilot.press("escape")
        assert link.sent[-1] == Stop(1)
        link.say(finished(link.generates()[0], reason="abort"))
        await settle(pilot)
        assert "half a" in drawn(pane(app, 1).transcript)
        assert "stopped" in drawn(pane(app, 1).transcript)
        await pilot.press("escape", "escape")
        assert app.is_running


async def test_escape_before_the_reply_gives_the_prompt_back(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("a", "enter", "escape")
        await settle(pilot)
        assert pane(app, 1).composer.text == "a"


async def test_up_and_down_walk_the_history(make_app, link):
    history = PromptHistory()
    history.add("old one")
    history.add("new\none")
    app = make_app(history=history)
    async with app.run_test(size=WIDE) as pilot:
        composer = pane(app, 1).composer
        await pilot.press("up")
        await pilot.pause()
        assert composer.text == "new\none"
        await pilot.press("up", "up")
        assert composer.text == "old one"
        await pilot.press("up")
        assert composer.text == "old one"
        await pilot.press("down", "down")
        assert composer.text == ""
        await pilot.press("x", "enter")
        assert history[-1] == "x"


async def test_draft_comes_back_after_the_history(make_app):
    history = PromptHistory()
    history.add("old")
    app = make_app(history=history)
    async with app.run_test(size=WIDE) as pilot:
        composer = pane(app, 1).composer
        await pilot.press("d", "up")
        assert composer.text == "old"
        await pilot.press("down")
        assert composer.text == "d"


async def test_drafts_stay_with_their_chats(make_app):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("a", "tab", "b", "alt+1", "c", "shift+tab", "d")
        assert pane(app, 1).composer.text == "ac"
        assert pane(app, 2).composer.text == "bd"


async def test_fork_opens_a_pane_to_the_right_with_the_same_turns(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY, prefill(1, 0, 3))
        await pilot.press("a", "enter")
        link.reply(link.generates()[0], "the boat left", finish=False)
        await settle(pilot)
        await pilot.press("f9")
        await settle(pilot)
        assert link.sent[-2] == Fork(1, 3, 2)
        assert [item.session.session_id for item in panes(app)] == [1, 3, 2]
        text = drawn(pane(app, 3).transcript)
        assert "⑂ from 1 a at turn 1" in text
        assert "the boat left" in text
        link.say(TextDelta(3, 2, " and came back", 6))
        await settle(pilot)
        assert "and came back" in drawn(pane(app, 3).transcript)
        assert "and came back" not in drawn(pane(app, 1).transcript)


async def test_regenerate_asks_the_same_turns_again(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await pilot.press("a", "enter")
        link.reply(link.generates()[0], "one")
        await settle(pilot)
        await pilot.press("ctrl+g")
        assert [turn.text for turn in link.generates()[1].turns] == ["a"]


async def test_broadcast_sends_to_all(make_app, link):
    app = make_app(sessions=4)
    async with app.run_test(size=WIDE) as pilot:
        await write(pilot, "all of you")
        await pilot.press("f7")
        assert [command.session_id for command in link.generates()] == [1, 2, 3, 4]
        assert {command.turns[-1].text for command in link.generates()} == {"all of you"}
        assert pane(app, 1).composer.text == ""


async def test_new_and_close(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("ctrl+n")
        await pilot.pause()
        assert [item.session.session_id for item in panes(app)] == [1, 2, 3]
        assert pane(app, 3).composer.has_focus
        await pilot.press("ctrl+d")
        await pilot.pause()
        assert link.sent[-2] == Close(3)
        assert pane(app, 2).composer.has_focus
        await pilot.press("a", "b", "left", "ctrl+d")
        assert pane(app, 2).composer.text == "a", "^D deletes where there is text"


async def test_closing_a_chat_with_turns_asks_first(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("a", "enter", "ctrl+d")
        assert isinstance(app.screen, ConfirmScreen)
        await pilot.press("escape")
        assert len(panes(app)) == 2
        await pilot.press("ctrl+d", "enter")
        await pilot.pause()
        assert len(panes(app)) == 1


async def test_zoom_and_layouts(make_app):
    app = make_app(sessions=4)
    async with app.run_test(size=WIDE) as pilot:
        assert len(panes(app)) == 4
        await pilot.press("f8")
        assert len(panes(app)) == 1
        await pilot.press("f8", "f6")
        assert len(panes(app)) == 4, "six cells show all four"
        app.chats.set_layout(2)
        assert [item.session.session_id for item in panes(app)] == [1, 2]
        await pilot.press("shift+tab")
        assert [item.session.session_id for item in panes(app)] == [3, 4]


async def test_narrow_terminal_has_one_pane_and_tabs(make_app):
    app = make_app(sessions=3)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert len(panes(app)) == 1
        assert "○ 1 new chat  ○ 2 new chat  ○ 3 new chat" in drawn(app.chats._tabs)
        await pilot.click("ChatTabs", offset=(20, 0))
        assert pane(app, 2).composer.has_focus
        await pilot.resize_terminal(*WIDE)
        await pilot.pause()
        assert len(panes(app)) == 3
        assert not app.chats._tabs.display


@pytest.mark.parametrize("size", [(20, 5), (5, 2), (39, 40), (120, 9)])
async def test_tiny_terminal_says_so_and_recovers(make_app, size):
    app = make_app()
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        assert isinstance(app.screen, TooSmallScreen)
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert app.screen is app.chats
        await pilot.press("a")
        assert pane(app, 1).composer.text == "a"


async def test_loading_is_shown_and_prompts_may_be_written(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(LoadProgress("weights", "Reading weights", 120 * 1024**2, 240 * 1024**2, "B"))
        await settle(pilot)
        banner = drawn(app.screen.query_one(StatusBanner))
        assert "Reading weights" in banner
        assert "120 MiB of 240 MiB" in banner
        await pilot.press("a", "enter")
        assert len(link.generates()) == 1
        link.say(READY)
        await settle(pilot)
        assert not app.screen.query_one(StatusBanner).display


async def test_failed_start_is_explained_and_ends_with_an_error_status(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(EngineFailed("There is no model 'x/y' on the hub.", "Check the name."))
        await settle(pilot)
        banner = drawn(app.screen.query_one(StatusBanner))
        assert "There is no model 'x/y' on the hub." in banner
        assert "Check the name." in banner
        await pilot.press("ctrl+q")
        await pilot.pause()
    assert app.return_code == 1
    assert link.closed


async def test_dead_engine_keeps_the_chats(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY, prefill(1, 0, 2))
        await pilot.press("a", "enter")
        link.reply(link.generates()[0], "half", finish=False)
        await settle(pilot)
        link.say(EngineDied(-9, "", True))
        await settle(pilot)
        assert "The engine ended (signal 9)" in drawn(app.screen.query_one(StatusBanner))
        assert "interrupted" in drawn(pane(app, 1).transcript)
        link.say(READY)
        await settle(pilot)
        assert not app.screen.query_one(StatusBanner).display
        await pilot.press("b", "enter")
        assert [turn.text for turn in link.generates()[-1].turns] == ["a", "half", "b"]


async def test_refused_prompt_is_explained_and_comes_back(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await pilot.press("a", "enter")
        link.say(RequestFailed(1, 1, "The prompt has 3000 tokens; 2048 fit.", "Shorten it."))
        await settle(pilot)
        assert "The prompt has 3000 tokens; 2048 fit. Shorten it." in drawn(pane(app, 1))
        assert pane(app, 1).composer.text == "a"


async def test_header_shows_the_engine_s_figures(make_app, link):
    app = make_app()
    async with app.run_test(size=(160, 40)) as pilot:
        link.say(READY, prefill(1, 0, 3, step=7))
        await settle(pilot)
        header = drawn(app.chats._header)
        assert "opt-125m  fp16 cuda:0" in header
        assert "free 253/256" in header
        assert "step 7" in header
        assert "ctx 44/2048 · 3 blk" in drawn(pane(app, 1))


async def test_header_tells_of_the_kernels(make_app, link):
    app = make_app()
    async with app.run_test(size=(160, 40)) as pilot:
        link.say(msgspec.structs.replace(READY, attention_backend="cuda"))
        await settle(pilot)
        assert "fp16 cuda:0  CUDA kernels" in drawn(app.chats._header)


async def test_pause_and_step(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await settle(pilot)
        await pilot.press("f4")
        assert link.sent[-1] == Pause()
        link.say(RunState(True))
        await settle(pilot)
        assert "‖ paused" in drawn(app.chats._header)
        await pilot.press("f5", "f4")
        assert link.sent[-2:] == [StepOnce(1), Resume()]


async def test_copy_selection_else_stop_else_hint(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await pilot.press("a", "enter")
        link.reply(link.generates()[0], "word " * 40, finish=False)
        await settle(pilot)
        transcript = pane(app, 1).transcript
        await pilot.mouse_down(transcript, offset=(0, 1))
        await pilot.hover(transcript, offset=(10, 2))
        await pilot.mouse_up(transcript, offset=(10, 2))
        await pilot.press("ctrl+c")
        assert app.clipboard.startswith("word word")
        assert len(app.clipboard) > 100, "more than a row"
        assert not {"\n", "▏"} & set(app.clipboard), "no gutter, no line end where the text was only wrapped"
        assert not any(isinstance(command, Stop) for command in link.sent)
        await pilot.press("ctrl+c")
        assert link.sent[-1] == Stop(1)


async def test_copy_last_reply(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await pilot.press("a", "enter")
        link.reply(link.generates()[0], "the\nreply")
        await settle(pilot)
        await pilot.press("ctrl+t")
        assert app.clipboard == "the\nreply"


async def test_scrolled_up_view_stays_and_end_returns(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=(80, 20)) as pilot:
        link.say(READY)
        await pilot.press("a", "enter")
        link.reply(link.generates()[0], "\n".join(map(str, range(60))), finish=False)
        await settle(pilot)
        transcript = pane(app, 1).transcript
        assert transcript.scroll_y == transcript.max_scroll_y > 0
        await pilot.press("pageup")
        at = transcript.scroll_y
        link.say(TextDelta(1, 1, "\nmore\nand more", 70))
        await settle(pilot)
        assert transcript.scroll_y == at
        assert "↓ new text" in drawn(transcript)
        await pilot.press("end")
        await pilot.pause()
        assert transcript.scroll_y == transcript.max_scroll_y
        assert "↓ new text" not in drawn(transcript)


async def test_quit_asks_while_replies_are_written(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("a", "enter", "ctrl+q")
        assert isinstance(app.screen, ConfirmScreen)
        await pilot.press("escape")
        assert app.is_running
        await pilot.press("ctrl+q", "enter")
        await pilot.pause()
    assert link.closed
    assert app.return_code == 0


async def test_quit_at_once_when_nothing_runs(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("ctrl+q")
        await pilot.pause()
    assert link.closed


async def test_a_program_left_as_it_starts_leaves_no_work_undone(make_app, recwarn):
    app = make_app()
    async with app.run_test():
        app._start_engine()
        app.workers.cancel_all()  # before any of them had a turn
    del app
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []


async def test_help_opens_and_closes(make_app):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f1")
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape")
        assert app.screen is app.chats


async def test_inspector_beside_the_chats_or_in_front_of_them(make_app, link):
    app = make_app()
    async with app.run_test(size=(160, 40)) as pilot:
        link.say(READY, prefill(1, 0, 3))
        await settle(pilot)
        await pilot.press("f3")
        await settle(pilot)
        assert app.screen is app.chats
        assert len(app.screen.query("InspectorPanel")) == 1
        await pilot.press("tab", "tab")
        assert not isinstance(app.focused, TextArea)
        await pilot.press("space", "full_stop")
        await settle(pilot)
        assert Pause() in link.sent
        await pilot.resize_terminal(*WIDE)
        await settle(pilot)
        assert len(app.screen.query("InspectorPanel")) == 0
        await pilot.press("f3")
        await settle(pilot)
        assert app.screen is not app.chats
        await pilot.press("f2")
        assert app.screen is app.chats


def test_every_action_is_in_the_palette(make_app):
    from pagedchat.tui.actions import APP_ACTIONS, CHAT_ACTIONS

    app = make_app()
    titles = {command.title for command in app.get_system_commands(app.chats)}
    assert {action.title for action in (*CHAT_ACTIONS, *APP_ACTIONS)} <= titles


def test_no_two_actions_share_a_key():
    from pagedchat.tui.actions import APP_ACTIONS, CHAT_ACTIONS, COMPOSER_ACTIONS, PALETTE

    actions = (*COMPOSER_ACTIONS, *CHAT_ACTIONS, *APP_ACTIONS, PALETTE)
    keys = [key for action in actions for key in action.keys.split(",")]
    assert len(keys) == len(set(keys))
    assert not {"ctrl+i", "ctrl+m", "ctrl+h", "ctrl+b", "ctrl+a", "f10", "f11"} & set(keys)


async def test_generate_is_sent_for_a_raw_chat(make_app, link):
    app = make_app(raw=True)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("a", "enter")
        assert isinstance(link.sent[-1], Generate)
        assert link.sent[-1].raw


def test_a_failed_start_is_said_again_on_the_way_out(monkeypatch):
    failure = EngineFailed("There is no folder nowhere.", "Give an existing folder.")
    monkeypatch.setattr(PagedChatApp, "run", lambda _app: None)
    monkeypatch.setattr(PagedChatApp, "failure", failure)
    with pytest.raises(PagedChatError) as caught:
        run_app(FakeEngineLink(), UiOptions())
    assert (caught.value.message, caught.value.hint) == ("There is no folder nowhere.", "Give an existing folder.")

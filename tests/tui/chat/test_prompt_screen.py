"""Prompts reach the engine, and what comes of them reaches the chats."""

from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.events import RequestFailed, TextDelta
from pagedchat.service.commands import Generate
from tests.fakes_tui import READY, finished
from tests.tui.whole_app import WIDE, drawn, pane, settle, write


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
        assert "you │ hello there" in text
        assert "ai  │ good morning▌" in text
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
        assert r"[bold]x[/bold] [@click=app.quit]y[/] \x1b[2J\x1b]0;t\x07z" in drawn(pane(app, 1).transcript)


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


async def test_escape_before_the_reply_gives_the_prompt_back(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("a", "enter", "escape")
        await settle(pilot)
        assert pane(app, 1).composer.text == "a"


async def test_broadcast_sends_to_all(make_app, link):
    app = make_app(sessions=4)
    async with app.run_test(size=WIDE) as pilot:
        await write(pilot, "all of you")
        await pilot.press("f7")
        assert [command.session_id for command in link.generates()] == [1, 2, 3, 4]
        assert {command.turns[-1].text for command in link.generates()} == {"all of you"}
        assert pane(app, 1).composer.text == ""


async def test_refused_prompt_is_explained_and_comes_back(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await pilot.press("a", "enter")
        link.say(RequestFailed(1, 1, "The prompt has 3000 tokens; 2048 fit.", "Shorten it."))
        await settle(pilot)
        assert "The prompt has 3000 tokens; 2048 fit. Shorten it." in drawn(pane(app, 1))
        assert pane(app, 1).composer.text == "a"


async def test_generate_is_sent_for_a_raw_chat(make_app, link):
    app = make_app(raw=True)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("a", "enter")
        assert isinstance(link.sent[-1], Generate)
        assert link.sent[-1].raw

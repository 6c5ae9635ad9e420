"""A context that is nearly full, on the screen."""

from pagedchat.tui.chat.foot_line import EventTicker
from tests.fakes_tui import READY, prefill
from tests.tui.commands.test_commands import command, complaint
from tests.tui.whole_app import WIDE, drawn, settle, toasts


async def test_the_foot_line_says_it_of_the_active_chat(make_app, link):
    app = make_app(sessions=2)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        link.say(READY, prefill(1, 0, 110))
        await settle(pilot)
        assert "context 1,756 of 2,048, 292 tokens left: then the reply ends" in drawn(
            app.screen.query_one(EventTicker)
        )
        await command(pilot, "/set full drop")
        assert "292 tokens left: the oldest turns will be left out" in drawn(app.screen.query_one(EventTicker))
        await pilot.press("tab")
        await settle(pilot)
        assert "context" not in drawn(app.screen.query_one(EventTicker))


async def test_a_full_chat_goes_on_in_a_new_pane(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await pilot.pause()
        await command(pilot, "/set full summary")
        assert toasts(app)[-1].startswith("When the context is nearly full, a new chat goes on with a summary")
        await command(pilot, "x" * 9000)  # at about three characters a token, more than there is
        link.reply(link.generates()[-1], "Long.")
        await settle(pilot)
        app.desk.chats[0].tokens_per_character = 0.3  # as an engine would have counted
        await command(pilot, "And then?")
        assert [chat.name for chat in app.desk] == ["x" * 13 + "…", "x" * 13 + "… 2"]
        new = app.desk.chats[1]
        assert app.chats.focused_chat is new
        assert list(new.queue) == ["And then?"]
        link.reply(link.generates()[-1], "It was long.")
        await settle(pilot)
        assert [turn.text for turn in link.generates()[-1].turns][1:] == ["It was long.", "And then?"]
        assert [entry.turn.text for entry in app.desk.chats[0].entries][1] == "Long."


async def test_what_full_may_be_is_said(make_app, link):
    app = make_app(sessions=1, when_full="drop")
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await pilot.pause()
        await command(pilot, "/set full explode")
        assert complaint(app).startswith("full is one of stop, drop, summary, not 'explode'.")
        await command(pilot, "/show")
        assert complaint(app).endswith("when full: drop")


async def test_a_full_chat_that_is_sent_to_with_others_goes_on_in_a_new_pane_too(make_app, link):
    app = make_app(sessions=2, when_full="summary")
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await pilot.pause()
        await command(pilot, "Hi")
        link.reply(link.generates()[-1], "Long.")
        await settle(pilot)
        app.desk.chats[0].tokens_per_character = 1000
        await command(pilot, "/send all And then?")
        await settle(pilot)
        assert [chat.session_id for chat in app.desk] == [1, 3, 2]
        assert [list(chat.queue) for chat in app.desk] == [[], ["And then?"], []]
        assert app.desk.chats[2].entries[-1].turn.text == "And then?"

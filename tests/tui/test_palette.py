"""The palette lists all that keys do."""

from pagedchat.tui.palette import _OTHER_WORDS, PaletteCommands
from tests.fakes_tui import READY
from tests.tui.whole_app import settle, until


def test_every_action_is_in_the_palette(make_app):
    from pagedchat.tui.actions import APP_ACTIONS, CHAT_ACTIONS

    app = make_app()
    titles = {command.title for command in app.get_system_commands(app.chats)}
    assert {action.title for action in (*CHAT_ACTIONS, *APP_ACTIONS)} <= titles


async def found(app, pilot, query):
    """The names that the palette offers for what is typed."""
    provider = PaletteCommands(app.chats)
    return [str(hit.match_display) async for hit in provider.search(query)]


async def test_commands_are_found_by_other_words(make_app):
    app = make_app()
    async with app.run_test() as pilot:
        for query, title in (
            ("colour", "Theme"), ("color", "Theme"), ("dark", "Theme"), ("colour", "Inspector: Map colours"),
            ("branch", "Fork chat"), ("exit", "Quit"), ("retry", "Ask again"), ("shortcuts", "Help"),
            ("temperature", "Set sampling"), ("pressure", "Limit the pool"),
        ):  # fmt: skip
            assert title in await found(app, pilot, query), query
        assert await found(app, pilot, "zzzz") == []


async def test_what_is_known_by_other_words_is_a_title(make_app):
    app = make_app()
    assert set(_OTHER_WORDS) <= {command.title for command in app.get_system_commands(app.chats)}


async def test_a_key_of_the_inspector_can_be_asked_for_in_the_palette(make_app, link):
    app = make_app()
    async with app.run_test(size=(160, 40)) as pilot:
        link.say(READY)
        await settle(pilot)
        await next(c for c in app.get_system_commands(app.chats) if c.title == "Inspector: Map colours").callback()
        assert app.inspector.block_map.grid.mode == "refs"


def test_keys_are_named_as_the_user_has_them(make_app):
    app = make_app()
    app.keys = {"inspector.colors": "x", "chat.fork": "f8"}
    helps = {command.title: command.help for command in app.get_system_commands(app.chats)}
    assert helps["Inspector: Map colours"].endswith("(x)")
    assert helps["Fork chat"].endswith("(F8)")


async def test_the_palette_uses_them(make_app):
    app = make_app()
    async with app.run_test() as pilot:
        await pilot.press("ctrl+p", *"colour")
        await until(
            pilot,
            lambda: "Theme" in str([option.prompt for option in app.screen.query_one("CommandList")._options]),
        )

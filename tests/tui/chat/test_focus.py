"""Which part has the keyboard: it is given once, never fought for; what is typed beside a panel is for the chat."""

import asyncio

from textual import events

from pagedchat.tui.inspector.pool.block_grid import BlockGrid
from pagedchat.tui.kit import keys_in_turn
from tests.fakes_tui import READY, prefill
from tests.tui.whole_app import WIDE, drawn, pane, settle

BESIDE = (200, 50)


async def count_changes(app, pilot):
    """How often another widget gets the keyboard while nobody does anything."""
    changes, before = 0, app.focused
    for _ in range(100):
        await asyncio.sleep(0.002)
        if app.focused is not before:
            changes, before = changes + 1, app.focused
    await pilot.pause()
    return changes


async def test_two_quick_tabs_end_in_one_chat(make_app):
    app = make_app(sessions=3)
    async with app.run_test(size=(160, 40)) as pilot:
        await settle(pilot)
        app.chats.action_focus_chat(1)
        app.chats.action_focus_chat(1)
        assert await count_changes(app, pilot) <= 1
        assert pane(app, 3).composer.has_focus
        assert app.chats.focused_chat.session_id == 3


async def test_two_forks_at_once_end_in_the_last(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=(160, 40)) as pilot:
        link.say(READY)
        await settle(pilot)
        await pilot.press(*"tale", "enter")
        await settle(pilot)
        await pilot.press(*"/fork 2", "enter")
        await settle(pilot)
        assert await count_changes(app, pilot) <= 1
        assert pane(app, 3).composer.has_focus


async def with_the_map_focused(app, pilot, link):
    link.say(READY, prefill(1, 0, 3))
    await settle(pilot)
    await pilot.press("f3")
    await settle(pilot)
    await pilot.press("tab")
    await pilot.press("tab")
    await settle(pilot)
    assert isinstance(app.focused, BlockGrid)


async def test_f2_and_escape_go_back_from_a_panel_to_the_composer(make_app, link):
    app = make_app()
    async with app.run_test(size=BESIDE) as pilot:
        for key in ("f2", "escape"):
            if app.chats.panel is None:
                await with_the_map_focused(app, pilot, link)
            else:
                app.chats.panel.block_map.grid.focus()
                await pilot.pause()
            await pilot.press(key)
            await pilot.pause()
            assert app.focused in (pane(app, 1).composer, pane(app, 2).composer)
            assert app.chats.panel is not None


async def test_escape_from_a_panel_stops_no_reply(make_app, link):
    app = make_app(sessions=2)
    async with app.run_test(size=BESIDE) as pilot:
        await with_the_map_focused(app, pilot, link)
        app.desk.submit(app.chats.focused_chat, "tale")
        await pilot.press("escape")
        assert app.chats.focused_chat.busy


async def test_a_sentence_typed_beside_a_panel_is_for_the_chat(make_app, link):
    app = make_app(sessions=2)
    async with app.run_test(size=BESIDE) as pilot:
        await with_the_map_focused(app, pilot, link)
        sent, kinds = list(link.sent), app.chats.panel.event_log.lines.filter
        await pilot.press(*"hey you, why / 1 + 2? [s.]")
        await pilot.pause()
        composer = pane(app, app.chats.focused_chat.session_id).composer
        assert composer.text == "hey you, why / 1 + 2? [s.]"
        assert composer.has_focus
        assert link.sent == sent
        assert app.chats.panel.event_log.lines.filter == kinds
        assert not app.clipboard


async def test_a_burst_of_keys_beside_a_panel_stays_in_order(make_app, link):
    app = make_app(sessions=2)
    async with app.run_test(size=BESIDE) as pilot:
        await with_the_map_focused(app, pilot, link)
        text = "every letter in its place"
        for letter in text:
            app.post_message(events.Key("space" if letter == " " else letter, letter))
        await settle(pilot)
        assert pane(app, app.chats.focused_chat.session_id).composer.text == text


async def test_a_paste_beside_a_panel_is_for_the_chat(make_app, link):
    app = make_app(sessions=2)
    async with app.run_test(size=BESIDE) as pilot:
        await with_the_map_focused(app, pilot, link)
        app.post_message(events.Paste("two\nlines"))
        await settle(pilot)
        assert pane(app, app.chats.focused_chat.session_id).composer.text == "two\nlines"


async def test_alt_and_a_letter_reach_the_panel(make_app, link):
    app = make_app(sessions=2)
    async with app.run_test(size=BESIDE) as pilot:
        await with_the_map_focused(app, pilot, link)
        mode = app.chats.panel.block_map.grid.mode
        await pilot.press("alt+c")
        assert app.chats.panel.block_map.grid.mode != mode


async def test_the_footer_shows_the_keys_of_the_part_that_has_them(make_app, link):
    app = make_app(sessions=2)
    async with app.run_test(size=BESIDE) as pilot:
        await settle(pilot)
        bar = app.chats.query_one("KeyBar")
        assert "Enter send" in drawn(bar)
        await with_the_map_focused(app, pilot, link)
        assert "Enter send" not in drawn(bar)
        assert "Alt+C colours" in drawn(bar)
        assert "Esc to the chat" in drawn(bar)
        await pilot.press("escape")
        await settle(pilot)
        assert "Enter send" in drawn(bar)


async def test_a_click_in_another_pane_chooses_it(make_app):
    app = make_app(sessions=2)
    async with app.run_test(size=WIDE) as pilot:
        await settle(pilot)
        await pilot.click(pane(app, 2))
        await settle(pilot)
        assert app.chats.focused_chat.session_id == 2
        assert pane(app, 2).composer.has_focus


async def test_control_c_in_a_panel_leaves_the_prompt_alone(make_app, link):
    app = make_app(sessions=2)
    async with app.run_test(size=BESIDE) as pilot:
        await with_the_map_focused(app, pilot, link)
        composer = pane(app, app.chats.focused_chat.session_id).composer
        composer.insert("a draft")
        await pilot.press("ctrl+c")
        assert composer.text == "a draft"


def typed(app, *keys):
    """As a terminal sends what was typed while the program was busy: all of it at once."""
    for key in keys:
        app.post_message(events.Key({" ": "space"}.get(key, key), key if len(key) == 1 else None))


async def test_what_is_typed_behind_a_key_that_leads_to_another_chat_is_for_that_one(make_app, monkeypatch):
    monkeypatch.setattr(keys_in_turn, "_PATIENCE", 30)  # other tests may keep the machine busy for half a second
    app = make_app(sessions=3)
    async with app.run_test(size=(160, 40)) as pilot:
        await settle(pilot)
        typed(app, *"one", "tab", *"two", "tab", *"three", "alt+1", *" and", "shift+tab", *" go")
        await settle(pilot)
        assert [pane(app, number).composer.text for number in (1, 2, 3)] == ["one and", "two", "three go"]


async def test_prompts_typed_at_once_with_tabs_between_them_go_each_to_its_chat(make_app, link):
    app = make_app(sessions=2)
    async with app.run_test(size=(160, 40)) as pilot:
        link.say(READY)
        await settle(pilot)
        typed(app, *"sea", "enter", "tab", *"moon", "enter")
        await settle(pilot)
        assert [(each.session_id, each.turns[-1].text) for each in link.generates()] == [(1, "sea"), (2, "moon")]


async def test_what_is_typed_behind_a_key_that_opens_a_chat_is_for_that_one(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=(160, 40)) as pilot:
        link.say(READY)
        await settle(pilot)
        typed(app, *"tale", "enter", "f9", *"fork", "ctrl+n", *"new")
        await settle(pilot)
        assert [pane(app, number).composer.text for number in (1, 2, 3)] == ["", "fork", "new"]
        typed(app, "alt+1", *"/fork", "enter", *"behind")
        await settle(pilot)
        assert pane(app, 4).composer.text == "behind"


async def test_a_key_whose_chat_is_closed_meanwhile_keeps_no_other_waiting(make_app, link):
    app = make_app(sessions=3)
    async with app.run_test(size=(160, 40)) as pilot:
        await settle(pilot)
        typed(app, "ctrl+d", *"a", "ctrl+d", *"b")
        await settle(pilot)
        assert "".join(each.composer.text for each in app.chats._panes) in ("a", "ab", "b")
        typed(app, *"c")
        await settle(pilot)
        assert app.focused.text.endswith("c")

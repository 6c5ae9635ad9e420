"""Every sign that is drawn is one that all usual terminal fonts have; with --ascii it is an ASCII one."""

import ast
from pathlib import Path

import pytest

import pagedchat
from pagedchat.events import EngineFailed, LoadProgress
from pagedchat.tui.inspector.timeline.step_detail import StepDetail
from pagedchat.view.sentences.glyphs import GLYPHS, PLAIN
from tests.fakes_tui import READY, prefill
from tests.tui.whole_app import pane, settle

PACKAGE = Path(pagedchat.__file__).parent
DRAWN = ("tui", "view", "chat")
TEXT_OF_OTHERS = {"sanitize.py", "written_out.py", "visible.py", "glyphs.py"}
"""Which name signs in order to exchange them, or make characters of others visible."""
NO_TEXT = {0xFFFD, *range(0xD800, 0xE000)}
"""Bytes that are no text; `PLAIN` exchanges them, too."""
WGL4 = set("·×¶«»¹²³–—‘’“”•…‹›←↑→↓−√‼─│┌┐└┘├┤┬┴┼═║╒╓╔╕╖╗╘╙╚╛╜╝╞╟╠╡╢╣╤╥╦╧╨╩╪╫╬▀▄█▌▐░▒▓■□▪▫▬▲►▼◄◊○●◘◙◦")
"""As much of it as a screen has use for: the whole of its lines, blocks and shapes."""


def literals(path):
    """All texts in a module but its docstrings."""
    tree = ast.parse(path.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def test_every_glyph_is_in_every_font_and_has_an_ascii_sign():
    assert set(GLYPHS) <= WGL4
    assert all(len(sign) == 1 and sign.isascii() for sign in GLYPHS.values())
    assert all(sign in GLYPHS or sign in "_ " for text in PLAIN.values() for sign in text)


@pytest.mark.parametrize("folder", DRAWN)
def test_no_text_of_ours_has_another_sign(folder):
    modules = [path for path in (PACKAGE / folder).rglob("*.py") if path.name not in TEXT_OF_OTHERS]
    found = {
        (path.name, sign)
        for path in modules
        for text in literals(path)
        for sign in text
        if not sign.isascii() and sign.isprintable() and sign not in GLYPHS and ord(sign) not in NO_TEXT
    }
    assert found == set()


def signs(app):
    """What is on the screen now that is not ASCII."""
    return {sign for strip in app.screen._compositor.render_strips() for sign in strip.text if not sign.isascii()}


async def show_it_all(app, pilot, link):
    """Every screen and every part; yields its name."""
    link.say(LoadProgress("weights", "Reading weights", 3, 10))
    await settle(pilot)
    yield "loading"
    link.say(READY, prefill(1, 0, 3), prefill(2, 3, 2, step=2))
    await settle(pilot)
    await pilot.press(*"tale", "enter", "tab", *"code", "enter")
    first, second = link.generates()
    link.reply(first, "A boat left.\n" * 60, finish=False)
    link.reply(second, "It did not.")
    await settle(pilot)
    yield "chats"
    pane(app, 1).transcript.scroll_to(y=0, animate=False)
    app.notify("A toast.", severity="error")
    await pilot.press(*"/l")
    await settle(pilot)
    yield "reading back, hints, a toast"
    await pilot.press("backspace", "backspace", "f9", "f3")
    await settle(pilot)
    yield "a fork, the inspector"
    panels = app.inspector.panels
    for place in range(4):
        panels.action_focus_panel(place)
        panels.action_toggle_full()
        await settle(pilot)
        yield f"panel {place}"
        panels.action_toggle_full()
    panels.action_toggle_sharing()
    for mode in range(5):
        panels.action_cycle_colors()
        await settle(pilot)
        yield f"sharing, colours {mode}"
    for open_screen in (
        app.action_help, app.action_command_palette, app.action_change_theme, panels.action_choose_kinds,
        app.inspector.action_ask_goto, lambda: app.open_block(1), lambda: app.push_screen(StepDetail(app.view, 2)),
    ):  # fmt: skip
        open_screen()
        await settle(pilot)
        yield str(app.screen)
        app.pop_screen()
    await app.action_quit()
    await settle(pilot)
    yield "a question"
    app.pop_screen()
    link.say(EngineFailed("There is no GPU.", "Use --device cpu."))
    await settle(pilot)
    yield "a failure"
    await pilot.resize_terminal(30, 8)
    await settle(pilot)
    yield "too small"


@pytest.mark.parametrize("ascii_only", [False, True])
async def test_all_that_is_drawn(ascii_only, make_app, link):
    app = make_app(ascii=ascii_only)
    async with app.run_test(size=(200, 50)) as pilot:
        allowed = set() if ascii_only else set(GLYPHS)
        strange = {name: found async for name in show_it_all(app, pilot, link) if (found := signs(app) - allowed)}
        assert strange == {}

"""A key and the slash command of the same thing ask the engine for the same, and refuse with the same words."""

import pytest

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.events import RunState
from pagedchat.service.commands import Pause, StepOnce
from pagedchat.tui.app import PagedChatApp, UiOptions
from tests.fakes_tui import READY, FakeEngineLink, prefill
from tests.tui.whole_app import WIDE, pane, settle, toasts

PAIRS = [
    ("f4", "/pause"),
    ("f5", "/step"),
    ("ctrl+n", "/new"),
    ("f9", "/fork"),
    ("ctrl+g", "/regen"),
    ("escape", "/stop"),
    ("ctrl+t", "/copy"),
    ("ctrl+d", "/close"),
    ("f1", "/help"),
    ("ctrl+q", "/quit"),
]
"""Each is what a user may do in the chat at hand; `^D` and `^Q` ask before anything is lost, as the commands do."""
WHILE_WRITTEN, AFTER = (
    {"f4", "f9", "escape", "ctrl+g", "ctrl+q"},
    {"f5", "f9", "ctrl+n", "ctrl+g", "ctrl+t", "ctrl+d", "f1"},
)
"""Keys that mean something else while a reply is written and after it; the others take turns."""
PAIRS_WHILE_PAUSED = [("f4", "/run"), ("f5", "/step"), ("f5", "/step 1")]


@pytest.fixture
def run_app():
    """Runs an app with two chats up to some moment, does one thing, and gives back what came of it."""

    async def run(prepare, do):
        link = FakeEngineLink()
        app = PagedChatApp(link, UiOptions(sessions=2), PromptHistory())
        app.animation_level = "none"
        async with app.run_test(size=WIDE) as pilot:
            await prepare(pilot, link)
            link.sent.clear()
            await do(pilot)
            await settle(pilot)
            return Outcome(link, app)

    return run


class Outcome:
    """What was sent to the engine, which screen stands in front, how many chats there are, and what was said."""

    def __init__(self, link, app):
        self.sent = list(link.sent)
        self.screen = type(app.screen).__name__
        self.num_chats = len(app.desk)
        self.clipboard = app.clipboard
        notice = app.chats.focused_chat.notice
        said = toasts(app)
        self.said = said or ([f"{notice.message} {notice.hint}".strip()] if notice is not None else [])

    def __eq__(self, other):
        return vars(self) == vars(other)

    def __repr__(self):
        return repr(vars(self))

    __hash__ = None


def press(key):
    async def do(pilot):
        await pilot.press(key)

    return do


def give(line):
    async def do(pilot):
        composer = pane(pilot.app, pilot.app.chats.focused_chat.session_id).composer
        composer.load_text(line)
        composer.action_send()

    return do


async def engine_runs(pilot, link):
    link.say(READY, prefill(1, 0, 3))
    await settle(pilot)


async def engine_is_paused(pilot, link):
    link.say(READY, RunState(True))
    await settle(pilot)


async def a_reply_was_written(pilot, link):
    await engine_runs(pilot, link)
    await pilot.press("a", "enter")
    link.reply(link.generates()[0], "the reply\nof two lines")
    await settle(pilot)


async def a_reply_is_written(pilot, link):
    await engine_runs(pilot, link)
    await pilot.press("a", "enter")
    link.reply(link.generates()[0], "half a", finish=False)
    await settle(pilot)


@pytest.mark.parametrize(("key", "line"), [pair for pair in PAIRS if pair[0] in WHILE_WRITTEN])
async def test_both_do_the_same_while_a_reply_is_written(run_app, key, line):
    assert await run_app(a_reply_is_written, press(key)) == await run_app(a_reply_is_written, give(line))


@pytest.mark.parametrize(("key", "line"), [pair for pair in PAIRS if pair[0] in AFTER])
async def test_both_do_the_same_after_a_reply(run_app, key, line):
    """But for Esc: with nothing to stop it puts away what is said, and the command says that there is nothing."""
    assert await run_app(a_reply_was_written, press(key)) == await run_app(a_reply_was_written, give(line))


@pytest.mark.parametrize(("key", "line"), PAIRS_WHILE_PAUSED)
async def test_both_do_the_same_while_paused(run_app, key, line):
    assert await run_app(engine_is_paused, press(key)) == await run_app(engine_is_paused, give(line))


@pytest.mark.parametrize(("key", "line"), [("f9", "/fork"), ("ctrl+g", "/regen"), ("ctrl+t", "/copy")])
async def test_both_refuse_in_an_empty_chat(run_app, key, line):
    by_key = await run_app(engine_runs, press(key))
    assert by_key == await run_app(engine_runs, give(line))
    assert by_key.said
    assert by_key.sent == []


@pytest.mark.parametrize(("key", "line"), [("f4", "/pause"), ("f5", "/step")])
async def test_both_refuse_without_an_engine(run_app, key, line):
    async def nothing(pilot, link):
        await settle(pilot)

    by_key = await run_app(nothing, press(key))
    assert by_key == await run_app(nothing, give(line))
    assert by_key.said == ["The engine is not running. Wait until it is ready, or type /restart."]
    assert by_key.sent == []


async def test_a_step_of_a_scheduler_that_runs_pauses_it_first(run_app):
    assert (await run_app(engine_runs, press("f5"))).sent == [Pause(), StepOnce(1)]


@pytest.mark.parametrize("prompt", ["all of you", "//etc/hosts says"])
async def test_a_prompt_to_all_is_the_same_either_way(run_app, prompt):
    async def send_to_all(pilot):
        pilot.app.focused.insert(prompt)
        await pilot.press("f7")

    by_key = await run_app(engine_runs, send_to_all)
    assert by_key == await run_app(engine_runs, give(f"/send all {prompt}"))
    assert [command.turns[-1].text for command in by_key.sent] == [prompt.removeprefix("/")] * 2

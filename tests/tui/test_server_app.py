"""Servers beside an engine and in its place: links that are the test, or a real one to a server that misbehaves."""

import asyncio
import time

import msgspec
import pytest

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.errors import PagedChatError
from pagedchat.events import (
    EngineFailed,
    LoadProgress,
    RequestFailed,
    RequestStarted,
    RequestWaits,
    ServerFigures,
    ServerInfo,
    ServerModels,
    TextDelta,
)
from pagedchat.history import run
from pagedchat.history.place import FILE_NAME
from pagedchat.remote.openai.address import ServerAddress
from pagedchat.remote.openai.link import OpenAILink
from pagedchat.service.commands import Close, Focus
from pagedchat.tui.app import PagedChatApp, UiOptions
from pagedchat.tui.chat.composer import Composer
from pagedchat.tui.chat.group_heading import GroupHeading
from pagedchat.tui.kit.key_bar import KeyBar
from pagedchat.tui.kit.picker import Picker
from pagedchat.tui.models import named
from tests.fakes_tui import READY, FakeEngineLink
from tests.misbehaving_server import MisbehavingServer
from tests.tui.whole_app import WIDE, drawn, pane, settle, toasts, until, write

LAB = ServerAddress("lab", "http://lab:8000/v1", is_named=True)
CLOUD = ServerAddress("cloud", "https://cloud/v1", is_named=True)


def ready(name="lab", model="org/tiny", kind="vLLM", *, continues=True, context=4096):
    server = ServerInfo(name, f"http://{name}:8000/v1", kind, (model, "org/other"), continues)
    return msgspec.structs.replace(
        READY, model=model, dtype="", device="", max_model_len=context, num_blocks=0, block_size=0, block_bytes=0,
        chat_template="model", sampling_defaults={}, server=server,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def no_models(monkeypatch):
    monkeypatch.setattr(named, "local_models", list)


class Rig:
    """An app, its engine of this machine if it has one, and its servers."""

    def __init__(self, link, servers, has_engine=True, clock=time.monotonic, **more):
        self.servers = {}
        self.local = []
        self.engine = link
        more = {"known_servers": {"lab": LAB, "cloud": CLOUD}, "open_engine": self._open_engine, **more}
        if not has_engine:
            self.servers[servers[0].name] = link
        model = "org/left" if has_engine else servers[0].text
        options = UiOptions(
            model=model, has_engine=has_engine, servers=servers, open_server=self._open, **more
        )  # fmt: skip
        self.app = PagedChatApp(link, options, PromptHistory(), clock=clock)
        self.app.animation_level = "none"

    def _open(self, address):
        self.servers[address.name] = FakeEngineLink()
        return self.servers[address.name]

    def _open_engine(self, model):
        self.local.append((model, FakeEngineLink()))
        return self.local[-1][1]


@pytest.fixture
def rig(link):
    def make(*servers, **more):
        return Rig(link, servers, **more)

    return make


def header(app):
    return drawn(app.screen).splitlines()[0]


def headings(app):
    return [
        drawn(heading) for heading in app.screen.query(GroupHeading) if heading.display and heading.parent.display
    ]


def words(widget):
    return " ".join(drawn(widget).replace("│", " ").split())


async def typed(pilot, line):
    if pilot.app.focused.text.startswith("/"):  # a command that was refused stays, to be mended
        pilot.app.focused.text = ""
    await write(pilot, line)
    await pilot.press("enter")
    for _ in range(3):
        await settle(pilot)


# --- in an engine's place -----------------------------------------------------------------------------


async def test_a_server_stands_where_an_engine_does_and_says_what_it_does_not_tell(rig):
    there = rig(LAB, has_engine=False)
    lab = there.servers["lab"]
    async with there.app.run_test(size=WIDE) as pilot:
        lab.say(ready(), ServerFigures(running=5.0, waiting=1.0, cache_usage=0.3))
        await settle(pilot)
        assert "tiny │ at lab  vLLM  cache 30%  running 5+1 │ 0 tok/s" in header(there.app)
        assert "blocks not told" in header(there.app)
        assert "@lab" in drawn(pane(there.app, 1))
        assert "lab: http://lab:8000/v1" in drawn(pane(there.app, 1))
        assert "this server does not tell its blocks" in drawn(there.app.screen)
        await typed(pilot, "Hi")
        [asked] = lab.generates()
        lab.reply(asked, "Hello.")
        await settle(pilot)
        assert "Hello." in drawn(pane(there.app, 1))
        assert "4 cached there of 10" in drawn(pane(there.app, 1))
        assert "ctx 11/4096" in drawn(pane(there.app, 1))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/pause", "lab serves others, too: its scheduler is not paused, stepped or slowed down from here."),
        ("/step", "its scheduler is not paused"),
        ("/slow 100", "its scheduler is not paused"),
        ("/limit 5", "The pool of lab is its own"),
        ("/pin 3", "The pool of lab is its own"),
        ("/unpin", "The pool of lab is its own"),
        ("/evict 3", "The pool of lab is its own"),
        ("/flush", "The pool of lab is its own"),
        ("/block 3", "lab is a server and does not tell its blocks."),
        ("/table", "lab is a server and does not tell its blocks."),
        ("/tour", "lab is a server and does not tell its blocks."),
        ("/goto 3", "there is no past to go to"),
        ("/trace save x.trace", "there is no past to go to"),
        ("/model org/none", "lab has no model called 'org/none'."),
        ("/move", "There is nowhere to move it to."),
        ("/continue", "The last reply came to its end."),
    ],
)
async def test_what_a_server_cannot_do_is_one_sentence(rig, line, said):
    there = rig(LAB, has_engine=False)
    async with there.app.run_test(size=WIDE) as pilot:
        there.servers["lab"].say(ready())
        await settle(pilot)
        await typed(pilot, line)
        notices = " ".join(toasts(there.app))
        assert said in words(pane(there.app, 1)) + notices


async def test_keys_of_the_scheduler_and_of_time_explain_too(rig):
    there = rig(LAB, has_engine=False)
    async with there.app.run_test(size=(170, 40)) as pilot:
        there.servers["lab"].say(ready())
        await settle(pilot)
        await pilot.press("f4", "f5")
        await pilot.press("f3")
        await settle(pilot)
        there.app.inspector.server_panel.focus()
        await pilot.press("space", ".", "comma", "[", "]", "0", "$", "w", "g", "c", "z", "t", "s", "f", "y", "1")
        await settle(pilot)
        said = toasts(there.app)
        assert any("its scheduler is not paused" in message for message in said)
        assert not [command for command in there.servers["lab"].sent if not isinstance(command, Focus)]


async def test_totals_and_context_are_what_the_server_counted(rig):
    there = rig(LAB, has_engine=False)
    lab = there.servers["lab"]
    async with there.app.run_test(size=WIDE) as pilot:
        lab.say(ready())
        await settle(pilot)
        await typed(pilot, "/context")
        assert "lab has not told how many tokens" in words(pane(there.app, 1))
        await typed(pilot, "Hi")
        lab.reply(lab.generates()[0], "Hello.")
        await typed(pilot, "/context")
        assert "11 of 4096 (0%) tokens with the last reply; 4 of its prompt were cached there" in words(
            pane(there.app, 1)
        )
        await typed(pilot, "/stats")
        assert "lab · vLLM · http://lab:8000/v1" in words(pane(there.app, 1))


async def test_the_inspector_has_its_figures_and_names_what_is_missing(rig):
    there = rig(LAB, has_engine=False)
    async with there.app.run_test(size=(100, 40)) as pilot:
        there.servers["lab"].say(ready(), ServerFigures("It has no /metrics."))
        await pilot.press("f3")
        await settle(pilot)
        await settle(pilot)
        shown = drawn(there.app.screen)
        assert "It has no /metrics." in shown
        assert "This server does not tell its blocks: no map, no tables." in shown
        there.servers["lab"].say(ServerFigures(running=2.0, cache_usage=0.5, num_blocks=1000.0, block_size=16.0))
        await settle(pilot)
        shown = drawn(there.app.screen)
        assert "2 being answered" in shown
        assert "50% in use of 1,000 blocks of 16 tokens" in shown
        assert "preempted     not told" in shown


async def test_no_key_is_offered_there_that_does_nothing(rig):
    there = rig(LAB, has_engine=False)
    async with there.app.run_test(size=(100, 40)) as pilot:
        there.servers["lab"].say(ready())
        await pilot.press("f3")
        await settle(pilot)
        await settle(pilot)
        there.app.redraw()
        assert drawn(there.app.screen.query_one(KeyBar)).strip() == "Esc back  ^P palette"


async def test_of_a_pagedchat_it_says_how_to_see_the_blocks(rig):
    there = rig(LAB, has_engine=False)
    async with there.app.run_test(size=(100, 40)) as pilot:
        there.servers["lab"].say(ready(kind="pagedchat"))
        await pilot.press("f3")
        await settle(pilot)
        await settle(pilot)
        assert "pagedchat --attach http://lab:8000 opens chats on its engine" in drawn(there.app.screen)


async def test_an_empty_chat_and_the_wait_for_a_server_speak_of_the_server(rig):
    there = rig(LAB, has_engine=False)
    async with there.app.run_test(size=WIDE) as pilot:
        there.servers["lab"].say(LoadProgress("connect", "Asking lab for its models"))
        await settle(pilot)
        there.app.redraw()
        assert "it is sent when the server is ready" in drawn(there.app.screen)
        there.servers["lab"].say(ready())
        await settle(pilot)
        there.app.redraw()
        shown = words(pane(there.app, 1))
        assert "F3 shows what its server tells." in shown
        assert "blocks" not in shown


async def test_escapes_and_markup_of_a_server_are_text(rig):
    there = rig(LAB, has_engine=False)
    lab = there.servers["lab"]
    async with there.app.run_test(size=WIDE) as pilot:
        lab.say(ready(model="org/[bold]evil\x1b[31m"), ServerFigures("[link=x]no\x1b]0;t\x07[/link]"))
        await typed(pilot, "Hi")
        lab.reply(lab.generates()[0], "\x1b[2J[bold]plain[/bold]")
        await settle(pilot)
        await pilot.press("f3")
        await settle(pilot)
        shown = drawn(there.app.screen)
        await pilot.press("f2")
        await settle(pilot)
        shown += drawn(there.app.screen)
        assert "\x1b" not in shown
        assert "[bold]plain[/bold]" in shown
        assert "[bold]evil" in shown
        assert "[link=x]no" in shown


# --- trouble ------------------------------------------------------------------------------------------


async def test_a_server_that_is_away_says_so_keeps_the_prompt_and_is_asked_again(rig):
    there = rig(LAB, has_engine=False)
    lab = there.servers["lab"]
    async with there.app.run_test(size=WIDE) as pilot:
        lab.say(EngineFailed("lab cannot be reached: refused.", "Does it run?"))
        await settle(pilot)
        shown = words(there.app.screen)
        assert "lab cannot be reached: refused. Does it run?" in shown
        assert "F12 asks again, and so does the next prompt · the chats are kept" in shown
        await typed(pilot, "Hi")
        [asked] = lab.generates()
        lab.say(RequestFailed(1, asked.request_id, "lab cannot be reached.", ""))
        await settle(pilot)
        assert pane(there.app, 1).composer.text == "Hi"
        await pilot.press("f12")
        await settle(pilot)
        assert lab.num_restarts == 1
        lab.say(ready())
        await settle(pilot)
        assert "cannot be reached: refused" not in words(there.app.screen)


async def test_a_wait_is_seen_and_a_cut_reply_is_gone_on_with(rig):
    there = rig(LAB, has_engine=False)
    lab = there.servers["lab"]
    async with there.app.run_test(size=WIDE) as pilot:
        lab.say(ready())
        await typed(pilot, "Hi")
        [asked] = lab.generates()
        lab.say(RequestWaits(1, asked.request_id, "waits for an answer: 3 s, given up after 120 s"))
        await settle(pilot)
        assert "waits for an answer: 3 s" in drawn(pane(there.app, 1))
        ids = 1, asked.request_id
        lab.say(
            RequestStarted(*ids, 0, 0), TextDelta(*ids, "So far, ", 2), RequestFailed(*ids, "lab cut it.", "Well.")
        )
        await settle(pilot)
        shown = words(pane(there.app, 1))
        assert "So far," in shown
        assert "lab cut it. Well." in shown
        assert "interrupted; /continue goes on from here" in shown
        await pilot.press("alt+r")
        await settle(pilot)
        again = lab.generates()[1]
        assert [turn.text for turn in again.turns] == ["Hi", "So far, "]
        lab.reply(again, "so good.")
        await settle(pilot)
        assert there.app.groups.chats[0].last_reply == "So far, so good."
        assert "So far, so good." in drawn(pane(there.app, 1))


# --- several models -----------------------------------------------------------------------------------


async def test_a_server_of_several_models_has_one_chosen(rig):
    there = rig(LAB, has_engine=False)
    lab = there.servers["lab"]
    async with there.app.run_test(size=WIDE) as pilot:
        lab.say(ServerModels("lab", ["org/tiny", "org/large"]))
        await settle(pilot)
        assert isinstance(there.app.screen, Picker)
        await pilot.press("escape")
        await settle(pilot)
        assert "lab has 2 models ^L chooses one" in words(there.app.screen)
        await pilot.press("ctrl+l")
        await settle(pilot)
        await pilot.press(*"large", "enter")
        await settle(pilot)
        assert lab.switched_to == ["lab#org/large"]
        lab.say(ready(model="org/large"))
        await settle(pilot)
        assert "large │ at lab" in header(there.app)
        await typed(pilot, "/model org/other")
        assert lab.switched_to == ["lab#org/large", "lab#org/other"]


async def test_two_models_of_one_server_side_by_side(rig):
    there = rig(LAB, has_engine=False)
    lab = there.servers["lab"]
    async with there.app.run_test(size=WIDE) as pilot:
        lab.say(ready())
        await settle(pilot)
        await typed(pilot, "/model org/other --beside")
        [(model, other)] = lab.others
        assert (model, other.started) == ("org/other", True)
        other.say(ready(model="org/other"))
        await settle(pilot)
        assert ["tiny at lab" in headings(there.app)[0], "other at lab" in headings(there.app)[1]] == [True, True]


# --- side by side, and from one to another ------------------------------------------------------------


async def all_ready(pilot, there):
    there.engine.say(msgspec.structs.replace(READY, model="org/left"))
    for name, link in there.servers.items():
        link.say(ready(name))
    await settle(pilot)


async def test_an_engine_and_two_servers_stand_in_one_grid_and_answer_one_prompt(rig):
    there = rig(LAB, CLOUD)
    async with there.app.run_test(size=(140, 30)) as pilot:
        await settle(pilot)
        assert [link.started for link in (there.engine, *there.servers.values())] == [True, True, True]
        await all_ready(pilot, there)
        assert [name in heading for name, heading in zip(
            ("left", "tiny at lab", "tiny at cloud"), headings(there.app), strict=True
        )] == [True, True, True]  # fmt: skip
        await write(pilot, "Compare.")
        await pilot.press("f7")
        await settle(pilot)
        assert [len(link.generates()) for link in (there.engine, *there.servers.values())] == [1, 1, 1]


async def test_where_there_is_no_room_the_active_group_is_seen(rig):
    there = rig(LAB, CLOUD)
    async with there.app.run_test(size=(100, 30)) as pilot:
        await all_ready(pilot, there)
        assert len(headings(there.app)) == 2
        await pilot.press("alt+3")
        await settle(pilot)
        assert any("► tiny at cloud" in heading for heading in headings(there.app))


async def test_a_chat_moves_with_all_its_text_and_its_draft(rig):
    there = rig(LAB)
    app = there.app
    async with app.run_test(size=WIDE) as pilot:
        await all_ready(pilot, there)
        await typed(pilot, "Tell me.")
        there.engine.reply(there.engine.generates()[0], "A tale.")
        await settle(pilot)
        [chat] = app.groups.first.desk
        before = [entry.turn for entry in chat.entries]
        await write(pilot, "and th")
        await pilot.press("alt+v")
        for _ in range(3):
            await settle(pilot)
        lab = list(app.groups)[1]
        assert list(lab.desk) == [chat]
        assert [entry.turn for entry in chat.entries] == before
        assert Close(chat.session_id) in there.engine.sent
        assert pane(app, chat.session_id).composer.text == "and th"
        assert "Moved from left to tiny at lab: the next prompt sends 2 turns" in words(pane(app, chat.session_id))
        assert [other.label for other in app.groups.first.desk] == ["3 new chat"]
        await typed(pilot, "en?")
        [asked] = there.servers["lab"].generates()
        assert [turn.text for turn in asked.turns] == ["Tell me.", "A tale.", "and then?"]
        there.servers["lab"].reply(asked, "More.")
        await settle(pilot)
        await typed(pilot, "/move left")
        assert list(app.groups.first.desk)[-1] is chat
        assert chat.last_reply == "More."


async def test_a_reply_that_is_being_written_goes_on_where_the_chat_goes(rig):
    there = rig(LAB)
    app, lab = there.app, there.servers["lab"]
    async with app.run_test(size=WIDE) as pilot:
        await all_ready(pilot, there)
        await typed(pilot, "Tell me.")
        asked = there.engine.generates()[0]
        there.engine.reply(asked, "Once upon ", finish=False)
        await settle(pilot)
        await typed(pilot, "/move 2")
        there.engine.say(TextDelta(1, asked.request_id, "never", 9))
        [going_on] = lab.generates()
        assert [turn.text for turn in going_on.turns] == ["Tell me.", "Once upon "]
        lab.reply(going_on, "a time.")
        await settle(pilot)
        [chat] = list(app.groups)[1].desk
        assert chat.last_reply == "Once upon a time."
        assert "the reply goes on there" in words(pane(app, chat.session_id))


async def test_a_server_that_cannot_go_on_says_how_and_a_prompt_without_reply_comes_back(rig):
    there = rig(LAB)
    app = there.app
    async with app.run_test(size=WIDE) as pilot:
        there.engine.say(msgspec.structs.replace(READY, model="org/left"))
        there.servers["lab"].say(ready(kind="", continues=False))
        await settle(pilot)
        await typed(pilot, "Tell me.")
        there.engine.reply(there.engine.generates()[0], "Once upon ", finish=False)
        await settle(pilot)
        await typed(pilot, "/move 2")
        assert there.servers["lab"].generates() == []
        assert "Alt+R goes on with the reply." in words(pane(app, 1))
        await pilot.press("alt+3")
        await typed(pilot, "Unanswered.")
        await typed(pilot, "/move lab")
        assert pane(app, 3).composer.text == "Unanswered."


async def test_moving_says_what_it_cannot(rig):
    there = rig(LAB, CLOUD)
    app = there.app
    async with app.run_test(size=(140, 30)) as pilot:
        await all_ready(pilot, there)
        await typed(pilot, "/move nowhere")
        assert "called 'nowhere'; there are 1 left, 2 tiny at lab, 3 tiny at cloud." in words(pane(app, 1))
        await typed(pilot, "/move 1")
        assert "1 new chat is at left already." in words(pane(app, 1))
        await pilot.press("alt+v")
        await settle(pilot)
        assert isinstance(app.screen, Picker)
        await pilot.press("down", "enter")
        for _ in range(3):
            await settle(pilot)
        assert [len(group.desk) for group in app.groups] == [1, 1, 1]
        assert app.chats.focused_chat in list(app.groups)[2].desk.chats


# --- coming and going ---------------------------------------------------------------------------------


async def test_servers_are_opened_by_name_url_and_from_a_list_and_closed(rig):
    there = rig()
    app = there.app
    async with app.run_test(size=WIDE) as pilot:
        there.engine.say(READY)
        await settle(pilot)
        await typed(pilot, "/server lab")
        assert (app.groups.shown.server, there.servers["lab"].started) == (LAB, True)
        await typed(pilot, "/server http://10.0.0.4:8000")
        assert there.servers["10.0.0.4:8000"].started
        await typed(pilot, "/server lob")
        assert "There is no server called 'lob'; there are 'lab', 'cloud'." in words(app.screen)
        await typed(pilot, "/server --close")
        assert len(app.groups) == 2
        app.choose_server()
        await settle(pilot)
        await pilot.press(*"cloud", "enter")
        for _ in range(3):
            await settle(pilot)
        assert there.servers["cloud"].started
        assert there.servers["10.0.0.4:8000"].closed


async def test_an_engine_of_this_machine_can_come_later(rig):
    there = rig(LAB, has_engine=False)
    app = there.app
    async with app.run_test(size=WIDE) as pilot:
        there.servers["lab"].say(ready())
        await settle(pilot)
        assert there.local == []
        await typed(pilot, "/server local")
        [(model, local)] = there.local
        assert (model, local.started) == ("pagedchat-toy", True)


async def test_there_are_not_too_many(rig):
    there = rig(*[LAB] * 8)
    async with there.app.run_test(size=WIDE) as pilot:
        await settle(pilot)
        with pytest.raises(PagedChatError, match="9 engines and servers stand side by side"):
            await there.app.open_server("cloud")


async def test_where_chats_ran_is_kept_and_comes_back(tmp_path, link):
    history = run.begin(path=tmp_path / FILE_NAME)
    there = Rig(link, (LAB,), history=history)
    async with there.app.run_test(size=WIDE) as pilot:
        await all_ready(pilot, there)
        await pilot.press("alt+2")
        await typed(pilot, "Hi")
        lab = there.servers["lab"]
        lab.reply(lab.generates()[0], "From the lab.")
        await settle(pilot)
        await pilot.press("ctrl+q")
        await pilot.pause()
    await asyncio.to_thread(history.thread.close)
    history = run.begin(path=tmp_path / FILE_NAME, go_on=True)
    layout = history.reopened.layout
    assert (layout.models, [place.beside for place in layout.panes]) == (("org/left", "server:lab"), [0, 1])
    app = PagedChatApp(
        FakeEngineLink(),
        UiOptions(servers=(LAB,), history=history, open_server=lambda _: FakeEngineLink()),
        PromptHistory(),
    )
    async with app.run_test(size=WIDE) as pilot:
        await settle(pilot)
        assert [[chat.session_id for chat in group.desk] for group in app.groups] == [[1], [2]]
        assert "From the lab." in drawn(pane(app, 2))
        [found] = (await asyncio.wrap_future(history.thread.ask(lambda kept: kept.search.chats("")))).chats
        assert found.model == "org/tiny at lab"
    await asyncio.to_thread(history.thread.close)


# --- a real link --------------------------------------------------------------------------------------


async def test_the_whole_way_to_a_server_that_cuts_and_back():
    async with MisbehavingServer() as server:
        address = ServerAddress("lab", server.url)
        there = OpenAILink(address)
        options = UiOptions(has_engine=False, servers=(address,), model=address.text)
        app = PagedChatApp(there, options, PromptHistory())
        async with app.run_test(size=WIDE) as pilot:
            await until(pilot, lambda: app.view.server is not None)
            await settle(pilot)
            await typed(pilot, "cut")
            await until(pilot, lambda: app.desk.chats[0].can_go_on)
            await settle(pilot)
            assert "lab ended the stream in the middle of the reply." in words(pane(app, 1))
            await typed(pilot, "/continue")
            await until(pilot, lambda: not app.desk.chats[0].busy)
            await settle(pilot)
            assert app.desk.chats[0].last_reply == "This reply is cut and on it goes."
            await until(pilot, lambda: app.view.server.figures is not None)
            await settle(pilot)
            assert "cache 30%" in header(app)
        await there.close()


# --- pictures -----------------------------------------------------------------------------------------


def test_an_engine_and_a_server_look(snap_compare, link, monkeypatch):
    monkeypatch.setattr(Composer, "cursor_blink", False)
    there = Rig(link, (LAB,), clock=lambda: 100.0)

    async def run_before(pilot):
        await all_ready(pilot, there)
        there.servers["lab"].say(ServerFigures(running=5.0, waiting=1.0, cache_usage=0.3))
        await write(pilot, "Where are you?")
        await pilot.press("f7")
        await settle(pilot)
        there.engine.reply(there.engine.generates()[0], "On this machine.")
        lab = there.servers["lab"]
        lab.reply(lab.generates()[0], "In the lab, among others.")
        await settle(pilot)

    assert snap_compare(there.app, terminal_size=(120, 30), run_before=run_before)


def test_a_servers_inspector_look(snap_compare, link):
    there = Rig(link, (LAB,), has_engine=False, clock=lambda: 100.0)

    async def run_before(pilot):
        link.say(
            ready(),
            ServerFigures(
                running=5.0, waiting=1.0, cache_usage=0.3, num_blocks=27504.0, block_size=16.0,
                prefix_queries=1000.0, prefix_hits=640.0, generated_tokens=8100.0,
            ),
        )  # fmt: skip
        await settle(pilot)
        await pilot.press("f3")
        await settle(pilot)
        await settle(pilot)

    assert snap_compare(there.app, terminal_size=(100, 30), run_before=run_before)

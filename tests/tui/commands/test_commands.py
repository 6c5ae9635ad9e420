"""Slash commands: told from prompts, completed, carried out, refused in one sentence."""

import asyncio

import pytest
from textual.content import Content

from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.events import EngineNotice, RequestStarted, RunState, TextDelta
from pagedchat.service.commands import (
    Close,
    Evict,
    FlushCache,
    Fork,
    Pause,
    Pin,
    Resume,
    SetLimit,
    SetPace,
    StepOnce,
    Stop,
    Unpin,
)
from pagedchat.tui.chat.chat_pane import ChatPane
from pagedchat.tui.chat.foot_line import CommandHints, hints_line
from pagedchat.tui.chat.header import header_line
from pagedchat.tui.commands.registry import COMMANDS, candidates, completed, find
from pagedchat.tui.commands.syntax import CommandError, is_command, literal, split_line
from pagedchat.tui.help import HelpScreen
from pagedchat.tui.inspector.pool.block_detail import BlockDetail
from pagedchat.tui.messages import PromptSubmitted
from tests.fakes_tui import READY, finished, prefill
from tests.tui.whole_app import WIDE, pane, settle, toasts


async def command(pilot, line):
    """Type a line into the active chat and press Enter."""
    pilot.app.chats.focused_chat.dismiss()
    pane_of(pilot.app).composer.load_text(line)
    pane_of(pilot.app).composer.action_send()
    await settle(pilot)


def pane_of(app):
    number = app.chats.focused_chat.session_id
    return next(pane for pane in app.chats.query(ChatPane) if pane.session.session_id == number)


def complaint(app):
    """What the active chat says about the last command."""
    notice = app.chats.focused_chat.notice
    return "" if notice is None else f"{notice.message} {notice.hint}".strip()


# --- text -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "command"),
    [("/help", True), ("/", True), ("//help", False), ("hi /help", False), ("/a\n/b", False), ("", False)],
)
def test_a_single_line_with_one_slash_is_a_command(prompt, command):
    assert is_command(prompt) == command


def test_two_slashes_send_one_and_pasted_code_stays_as_it_is():
    assert literal("//etc/hosts says") == "/etc/hosts says"
    assert literal("// one\n// two") == "// one\n// two"


def test_a_line_is_a_name_and_the_rest():
    assert split_line("/Send  all  hello  there ") == ("send", "all  hello  there")
    assert split_line("/") == ("", "")


def test_unknown_command_names_the_nearest():
    with pytest.raises(CommandError, match=r"There is no /limt\. Did you mean /limit\?"):
        find("limt")
    with pytest.raises(CommandError) as raised:
        find("xyzzy")
    assert (raised.value.message, raised.value.hint) == (
        "There is no /xyzzy.", "/help lists all; // sends a slash to the model.",
    )  # fmt: skip


def test_aliases_mean_the_same():
    assert find("bye") is find("exit") is find("quit")


def test_names_are_distinct_and_every_command_is_explained():
    names = [name for command in COMMANDS for name in (command.name, *command.aliases)]
    assert len(set(names)) == len(names)
    assert all(command.help and command.help[0].isupper() for command in COMMANDS)


def test_completion_puts_in_what_all_candidates_share():
    assert completed("/li") == "/limit "
    assert completed("/st") == "/st"
    assert {candidate.label for candidate in candidates("/st")} == {"/stats", "/step [n]", "/stop [all]"}
    assert completed("/trace l") == "/trace load "
    assert completed("/limit ") == "/limit "
    assert completed("/nothing") == "/nothing"


def test_a_complete_name_shows_its_usage():
    (only,) = candidates("/limit 12")
    assert (only.label, only.help) == ("/limit N|off", "The pool uses at most N blocks")


def test_hints_shrink_to_the_room():
    assert hints_line(candidates("/limit 1"), 80).plain == "/limit N|off  The pool uses at most N blocks"
    assert hints_line(candidates("/"), 30).cell_length <= 30


# --- typing -----------------------------------------------------------------------------------------


async def test_tab_completes_after_a_slash_and_moves_on_without(make_app):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("/", "l", "i", "tab")
        assert pane_of(app).composer.text == "/limit "
        assert app.screen.query_one(CommandHints).display
        for _ in range(7):
            await pilot.press("backspace")
        assert not app.screen.query_one(CommandHints).display
        await pilot.press("tab")
        assert app.chats.focused_chat.session_id == 2


async def test_unknown_command_is_not_sent_and_comes_back(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press(*"/limt", "enter")
        await settle(pilot)
        assert link.generates() == []
        assert complaint(app).startswith("There is no /limt. Did you mean /limit?")
        assert pane_of(app).composer.text == "/limt"


async def test_two_slashes_reach_the_model_as_one(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await command(pilot, "//help me")
        assert [turn.text for turn in link.generates()[0].turns] == ["/help me"]


async def test_several_lines_are_a_prompt(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await command(pilot, "/quit\n/quit")
        assert [turn.text for turn in link.generates()[0].turns] == ["/quit\n/quit"]


# --- chats ------------------------------------------------------------------------------------------


async def test_new_rename_and_close(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        await command(pilot, "/new sea tale")
        assert app.chats.focused_chat.label == "2 sea tale"
        await command(pilot, "/rename night [b]watch")
        assert app.chats.focused_chat.name == "night [b]watch"
        await command(pilot, "/close")
        assert link.sent[-2] == Close(2)
        assert len(app.desk) == 1


async def test_fork_several_times(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await command(pilot, "tale")
        await command(pilot, "/fork 2")
        assert [sent for sent in link.sent if isinstance(sent, Fork)] == [Fork(1, 2, 2), Fork(1, 3, 3)]


async def test_stop_all(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await command(pilot, "/send all hello")
        assert [sent.session_id for sent in link.generates()] == [1, 2]
        await command(pilot, "/stop all")
        assert [sent.session_id for sent in link.sent if isinstance(sent, Stop)] == [1, 2]


async def test_send_to_some(make_app, link):
    app = make_app(sessions=3)
    async with app.run_test(size=WIDE) as pilot:
        await command(pilot, "/send 1,3 good morning")
        assert [(sent.session_id, sent.turns[-1].text) for sent in link.generates()] == [
            (1, "good morning"), (3, "good morning"),
        ]  # fmt: skip


async def test_regen_asks_again(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await command(pilot, "tale")
        link.reply(link.generates()[0], "one")
        await settle(pilot)
        await command(pilot, "/regen")
        assert [turn.text for turn in link.generates()[1].turns] == ["tale"]


async def test_several_answers_to_one_prompt_grow_side_by_side(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await command(pilot, "/set seed 7")
        await command(pilot, "/n 3 tale of a fox")
        asked = link.generates()
        assert [[turn.text for turn in each.turns] for each in asked] == [["tale of a fox"]] * 3
        assert [each.overrides.seed for each in asked] == [7, None, None]
        assert [chat.name for chat in app.desk] == ["tale fox", "tale fox»a", "tale fox»b"]
        assert not any(isinstance(each, Fork) for each in link.sent), "the engine has nothing to fork yet"
        for each in asked:
            link.reply(each, "one")
        await settle(pilot)
        await command(pilot, "/n 2 and then")
        assert [type(each).__name__ for each in link.sent[-3:]] == ["Fork", "Generate", "Generate"]
        assert [turn.text for turn in link.generates()[-1].turns] == ["tale of a fox", "one", "and then"]
        assert len(list(app.desk)) == 4


async def test_answers_beside_the_one_that_is_there(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await command(pilot, "tale of a fox")
        link.reply(link.generates()[0], "one")
        await settle(pilot)
        await command(pilot, "/n 4")
        assert len(list(app.desk)) == 4
        assert [type(each).__name__ for each in link.sent[-6:]] == ["Fork", "Generate"] * 3
        assert [turn.text for turn in link.generates()[-1].turns] == ["tale of a fox"]


async def test_a_reply_is_searched_by_beams(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await command(pilot, "/beam 4 tale of a fox")
        (asked,) = link.generates()
        assert (asked.beam_width, [turn.text for turn in asked.turns]) == (4, ["tale of a fox"])
        ids = asked.session_id, asked.request_id
        link.say(RequestStarted(*ids, 10, 0), TextDelta(*ids, "The fox", 2, anew=True))
        await settle(pilot)
        app.redraw()
        told = "beam search, 4 wide · the likeliest so far: its words may change"
        assert Content.from_markup(pane(app, 1).border_subtitle).plain == told
        link.say(TextDelta(*ids, "A fox", 2, anew=True), finished(asked))
        await settle(pilot)
        app.redraw()
        assert app.chats.focused_chat.last_reply == "A fox"
        assert "beam" not in pane(app, 1).border_subtitle
        await command(pilot, "/beam 2")
        assert (link.generates()[-1].beam_width, len(link.generates()[-1].turns)) == (2, 1)
        await command(pilot, "/beam 2")
        assert complaint(app) == "A reply is being written. /stop or Esc ends it."


async def test_system_prompt_from_the_next_turn_on(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        await command(pilot, "/system You are a pirate.")
        await command(pilot, "hello")
        assert [turn.text for turn in link.generates()[0].turns] == ["You are a pirate.", "hello"]
        await command(pilot, "/system off")
        assert app.chats.focused_chat.system is None


async def test_settings_go_with_the_next_request(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await command(pilot, "/set temp 0.5")
        await command(pilot, "/set max 20")
        await command(pilot, "/set seed 7")
        await command(pilot, "/set seed off")
        await command(pilot, "/set min_p 0.1")
        await command(pilot, "/set frequency 0.5")
        await command(pilot, "/set speculate lookup")
        await command(pilot, "hello")
        assert link.generates()[0].overrides == SamplingOverrides(
            temperature=0.5, max_tokens=20, min_p=0.1, frequency_penalty=0.5, speculate="lookup"
        )
        link.say(finished(link.generates()[0]))
        await command(pilot, "/show")
        assert "temperature 0.5 (set)" in complaint(app)
        assert "max_tokens 20 (set)" in complaint(app)


async def test_queue_is_shown_and_cleared(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        for prompt in ("one", "two", "three"):
            await command(pilot, prompt)
        await command(pilot, "/queue")
        assert complaint(app) == "1. two\n2. three"
        await command(pilot, "/queue clear")
        assert not app.chats.focused_chat.queue


async def test_copy_a_reply_its_code_or_all(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        for prompt, reply in (("a", "first"), ("b", "see\n```python\nprint(1)\n```\nend")):
            await command(pilot, prompt)
            link.reply(link.generates()[-1], reply)
            await settle(pilot)
        await command(pilot, "/copy 1")
        assert app.clipboard == "first"
        await command(pilot, "/copy code")
        assert app.clipboard == "print(1)"
        await command(pilot, "/copy all")
        assert app.clipboard.startswith("### you\n\na\n\n### ai\n\nfirst\n\n### you\n\nb\n\n### ai\n\nsee")


async def test_layout_and_theme(make_app):
    app = make_app(sessions=4)
    async with app.run_test(size=WIDE) as pilot:
        await command(pilot, "/layout 2")
        assert sum(pane.display for pane in app.chats.query(ChatPane)) == 2
        await command(pilot, "/theme textual-light")
        assert app.theme == "textual-light"


async def test_context_and_stats(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY, prefill(1, 0, 3))
        await settle(pilot)
        await command(pilot, "/context")
        assert complaint(app).startswith("44 of 2048 tokens (2%), 10 of them computed")
        assert "3 blocks (1.69 MiB): 3 of its own, 0 shared" in complaint(app)
        await command(pilot, "/stats")
        assert "facebook/opt-125m · float16 on cuda:0" in complaint(app)
        assert "253 free" in complaint(app)
        await settle(pilot)
        shown = app.chats.query_one(ChatPane).query_one(".notice")
        assert shown.size.height >= complaint(app).count("\n") + 1 > 4  # all of it


# --- engine -----------------------------------------------------------------------------------------


ENGINE_COMMANDS = [
    ("/pause", [Pause()]),
    ("/run", [Resume()]),
    ("/step", [Pause(), StepOnce(1)]),
    ("/step 5", [Pause(), StepOnce(5)]),
    ("/slow 250", [SetPace(0.25)]),
    ("/slow off", [SetPace(0.0)]),
    ("/slow 0", [SetPace(0.0)]),
    ("/limit 120", [SetLimit(120)]),
    ("/limit off", [SetLimit(None)]),
    ("/pin 041", [Pin(41)]),
    ("/unpin 7", [Unpin(7)]),
    ("/unpin", [Unpin(None)]),
    ("/evict 255", [Evict(255)]),
    ("/flush", [FlushCache()]),
]


async def test_engine_commands(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await settle(pilot)
        for line, sent in ENGINE_COMMANDS:
            link.sent.clear()
            await command(pilot, line)
            assert link.sent == sent, line
            assert not complaint(app), line


async def test_a_paused_scheduler_only_steps(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY, RunState(True))
        await settle(pilot)
        before = len(link.sent)
        await command(pilot, "/step 3")
        assert link.sent[before:] == [StepOnce(3)]


WIRE = f"from {-(2**63)} to {2**64 - 1}"
TOP_K = "from -1 to 2147483647, 0 or -1 for all tokens"
COMPLAINTS = [
    ("/block 256", "There is no block 256: the pool has blocks 0 to 255."),
    ("/block abc", "A block is named by its number, not by 'abc'. Type /block ID"),
    ("/pin -1", "A block is named by its number, not by '-1'. Type /pin ID"),
    ("/evict 9999999", "There is no block 9999999: the pool has blocks 0 to 255."),
    ("/unpin x", "A block is named by its number, not by 'x'. Type /unpin [ID]"),
    ("/limit 0", "The limit in blocks must be from 1 to 256, not 0. Type /limit N|off"),
    ("/limit 257", "The limit in blocks must be from 1 to 256, not 257. Type /limit N|off"),
    ("/limit lots", "The limit in blocks must be a whole number, not 'lots'. Type /limit N|off"),
    ("/limit", "/limit needs an argument. Type /limit N|off"),
    ("/slow abc", "The pace is a number of milliseconds a step, not 'abc'. Type /slow MS|off"),
    ("/slow nan", "A step can take from 0 to 60000 ms, not nan. Type /slow MS|off"),
    ("/slow -5", "A step can take from 0 to 60000 ms, not -5. Type /slow MS|off"),
    ("/step 0", "The number of steps must be from 1 to 100000, not 0. Type /step [n]"),
    ("/goto soon", "The step must be a whole number, not 'soon'. Type /goto STEP|live"),
    ("/pause now", "/pause takes no argument. Type /pause alone."),
    ("/table 9", "There is no chat '9'; there are 1, 2. Type /table [chat]"),
    ("/send 1,9 hi", "There is no chat '9'; there are 1, 2. Type /send all|1,3 TEXT"),
    ("/send all", "/send needs the chats, then the prompt. Type /send all|1,3 TEXT"),
    ("/set temp hot", "temp must be a number, not 'hot'. Type /set NAME VALUE|off"),
    (
        "/set speculate maybe",
        "speculate is lookup, model or off, not 'maybe'. Type /set speculate lookup|model|off",
    ),
    ("/set speculate model", "There is no draft model. Start pagedchat with --speculate MODEL."),
    ("/set temp -1", "temp cannot be -1. It must be a number from 0 to 2."),
    ("/set temp nan", "temp cannot be nan. It must be a number from 0 to 2."),
    ("/set rep 1e39", "rep cannot be 1e39. It must be a number from 0.1 to 2."),
    ("/set min_p 2", "min_p cannot be 2. It must be a number from 0 to 1."),
    ("/set presence 3", "presence cannot be 3. It must be a number from -2 to 2."),
    ("/set top_p 2", "top_p cannot be 2. It must be a number above 0, up to 1."),
    (f"/set seed {'9' * 23}", f"seed cannot be {'9' * 23}. It must be a whole number {WIRE}."),
    (f"/set seed {'9' * 6000}", f"seed must be a whole number, not '{'9' * 56}.... Type /set NAME VALUE|off"),
    (f"/set max {'9' * 23}", f"max cannot be {'9' * 23}. It must be a whole number from 1 to {2**31 - 1}."),
    ("/set top_k 3000000000", f"top_k cannot be 3000000000. It must be a whole number {TOP_K}."),
    (f"/pin {'9' * 6000}", f"There is no block {'9' * 20}: the pool has blocks 0 to 255."),
    (f"/table {'9' * 6000}", f"There is no chat '{'9' * 56}...; there are 1, 2. Type /table [chat]"),
    (f"/limit {'9' * 70}", f"The limit in blocks must be from 1 to 256, not {'9' * 57}.... Type /limit N|off"),
    (f"/goto {'9' * 23}", f"The step must be from 0 to {2**63 - 1}, not {'9' * 23}. Type /goto STEP|live"),
    ("/slow 1e999", "A step can take from 0 to 60000 ms, not inf. Type /slow MS|off"),
    ("/layout 10", "The number of panes must be from 1 to 9, not 10. Type /layout 1|2|4|6|9|auto"),
    ("/trace save ~nobody-of-this-name/a", "There is no home folder of that name. Type /trace save|load FILE"),
    ("/set seed 1.5", "seed must be a whole number, not '1.5'. Type /set NAME VALUE|off"),
    ("/set temp", "temp needs a value; off follows the model again. Type /set NAME VALUE|off"),
    ("/layout 3", "There is no layout of 3 panes; there are 1, 2, 4, 6, 9."),
    ("/fork", "There is nothing to fork yet. Send a prompt first."),
    ("/fork 99", "The number of forks must be from 1 to 16, not 99. Type /fork [n] [@turn]"),
    ("/regen", "There is no prompt to ask again. Send a prompt first."),
    ("/beam 3", "There is no prompt to answer. Type /beam N PROMPT, or send one first."),
    ("/beam", "/beam needs an argument. Type /beam N [PROMPT]"),
    ("/beam 33 hi", "The number of beams must be from 2 to 32, not 33. Type /beam N [PROMPT]"),
    ("/beam one hi", "The number of beams must be a whole number, not 'one'. Type /beam N [PROMPT]"),
    ("/n 3", "/n needs the number of answers, then the prompt. Type /n N PROMPT"),
    ("/n 1 x", "The number of answers must be from 2 to 16, not 1. Type /n N [PROMPT]"),
    ("/stop", "No reply is being written."),
    ("/stop it", "/stop ends this chat's reply or all of them, not 'it'. Type /stop [all]"),
    ("/rename", "/rename needs an argument. Type /rename NAME"),
    ("/copy", "There is no reply to copy yet. Send a prompt first."),
    ("/trace keep x", "/trace needs save or load, and a file. Type /trace save|load FILE"),
    ("/trace save", "/trace needs save or load, and a file. Type /trace save|load FILE"),
]


async def test_what_cannot_be_is_said_in_one_sentence(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await settle(pilot)
        link.sent.clear()
        for line, message in COMPLAINTS:
            app.chats.focused_chat.dismiss()
            app.chats.post_message(PromptSubmitted(app.chats.focused_chat.session_id, line))
            for _ in range(100):  # nothing of it is looked at, so nothing need be drawn
                await asyncio.sleep(0)
                if app.chats.focused_chat.notice is not None:
                    break
            assert complaint(app) == message
        assert link.sent == []


async def test_unknown_names_list_what_there_is(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        await command(pilot, "/set mood bright")
        assert complaint(app).startswith("There is no setting 'mood'; there are temp, top_p, top_k,")
        await command(pilot, "/theme neon")
        assert complaint(app).startswith("There is no theme 'neon'. There are ")


async def test_without_an_engine_they_say_so(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.sent.clear()
        for line in ("/limit 5", "/pause", "/block 1", "/flush", "/stats", "/context", "/tour"):
            await command(pilot, line)
            assert "engine" in complaint(app), line
            pane_of(app).composer.load_text("")
        assert link.sent == []


async def test_the_engine_s_answer_is_shown(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY, EngineNotice("Limit 120: [b]8 blocks withheld", "/limit off lifts it."))
        await settle(pilot)
        await settle(pilot)
        assert toasts(app) == ["Limit 120: [b]8 blocks withheld /limit off lifts it."]


# --- screens ----------------------------------------------------------------------------------------


async def test_block_and_help_open_their_screens(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY, prefill(1, 0, 3))
        await settle(pilot)
        await command(pilot, "/block 002")
        assert isinstance(app.screen, BlockDetail)
        await pilot.press("escape")
        await command(pilot, "/help")
        assert isinstance(app.screen, HelpScreen)


async def test_table_opens_the_inspector_on_that_chat(make_app, link):
    app = make_app(sessions=2)
    async with app.run_test(size=(160, 40)) as pilot:
        link.say(READY, prefill(1, 0, 3), prefill(2, 3, 2, step=2))
        await settle(pilot)
        await command(pilot, "/table 2")
        lines = app.inspector.block_tables.lines
        assert lines.has_focus
        assert lines.chosen_block == 3


async def test_goto_shows_the_past_and_comes_back(make_app, link):
    app = make_app(sessions=2)
    async with app.run_test(size=(160, 40)) as pilot:
        link.say(READY, prefill(1, 0, 3), prefill(2, 3, 2, step=2))
        await settle(pilot)
        await command(pilot, "/goto 1")
        assert (app.view.past.step, list(app.view.mirror.sequences)) == (1, [1])
        assert "◄ step 1 of 2" in header_line(app.view, "", 160).plain
        await command(pilot, "/goto 9")
        assert complaint(app) == "Step 9 is beyond the end. Steps 0 to 2 are recorded."
        await command(pilot, "/goto live")
        assert app.view.past is None


async def test_trace_is_saved_and_loaded(make_app, link, tmp_path):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY, prefill(1, 0, 3))
        await settle(pilot)
        await command(pilot, f"/trace save {tmp_path / 'a.trace'}")
        assert any(str(tmp_path / "a.trace") in text for text in toasts(app))
        await command(pilot, f"/trace save {tmp_path / 'a.trace'}")
        assert "a.trace" in complaint(app)
        await command(pilot, f"/trace load {tmp_path / 'none'}")
        assert "none" in complaint(app)
        pane_of(app).composer.load_text("")
        await command(pilot, f"/trace load {tmp_path / 'a.trace'}")
        assert type(app.screen).__name__ == "ReplayScreen"


async def test_palette_begins_a_command_that_needs_more(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        commands = {command.title: command for command in app.get_system_commands(app.screen)}
        await commands["Limit the pool"].callback()
        await pilot.pause()
        assert pane_of(app).composer.text == "/limit "
        assert "Flush the prefix cache" in commands


async def test_text_of_a_chat_does_not_run_commands(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await command(pilot, "hello")
        link.reply(link.generates()[0], "/quit", finish=False)
        link.say(TextDelta(1, 1, "\n/quit", 2))
        await settle(pilot)
        assert app.is_running


@pytest.mark.parametrize(
    ("line", "bounds"),
    [
        ("temp 9", "from 0 to 2"), ("temp -1", "from 0 to 2"), ("temp nan", "from 0 to 2"),
        ("rep 9", "from 0.1 to 2"), ("rep 0", "from 0.1 to 2"), ("top_p 1.1", "up to 1"),
        ("min_p 2", "from 0 to 1"),
        ("presence 3", "from -2 to 2"), ("frequency -3", "from -2 to 2"), ("top_k -2", "from -1"),
        ("max 0", "from 1"), ("seed 1e3", "a whole number"),
    ],
)  # fmt: skip
async def test_every_setting_has_bounds(line, bounds, make_app, link):
    app = make_app(sessions=1)
    async with app.run_test() as pilot:
        link.say(READY)
        await settle(pilot)
        chat = app.desk.chats[0]
        await app.chats.run_command(chat, f"/set {line}")
        assert chat.notice is not None
        assert bounds in f"{chat.notice.message} {chat.notice.hint}"
        assert chat.overrides.set_values() == {}

"""Replies coloured by how sure the model was, the token under a cursor, and the fork that goes on otherwise."""

from math import log

import pytest

from pagedchat.events import RequestStarted, TextDelta, ToldToken, packed
from pagedchat.service.commands import Fork, Generate, Stop
from tests.fakes_tui import READY, finished
from tests.tui.chat.test_screen import panes
from tests.tui.commands.test_commands import command, complaint
from tests.tui.whole_app import WIDE, draw, drawn, pane, settle, toasts

PIECES = [
    ("The", 0.97, [(50, b"A", 0.02)]),
    (" sea", 0.3, [(51, b" boat", 0.6), (52, b"\x1b[2J", 0.05)]),
    (" was", 0.6, [(53, b" is", 0.3)]),
    (" blue", 0.05, [(54, b" grey", 0.5), (55, b" \xf0\x9f", 0.2)]),
    (".", 0.99, [(56, b"!", 0.005)]),
]


def told_tokens():
    tokens, start = [], 0
    for token_id, (text, share, others) in enumerate(PIECES, 10):
        ranked = sorted([(token_id, text.encode(), share), *others], key=lambda one: -one[2])
        each = [(token_id, text.encode(), share), *ranked]
        ids, texts = [one[0] for one in each], [one[1] for one in each]
        rank = 1 + [one[0] for one in ranked].index(token_id)
        logprobs = packed([log(one[2]) for one in each])
        tokens.append(ToldToken(start, start + len(text), rank, ids, texts, logprobs))
        start += len(text)
    return tokens


def tell(link, generate, *, finish=True):
    text = "".join(piece[0] for piece in PIECES)
    ids = generate.session_id, generate.request_id
    link.say(RequestStarted(*ids, 10, 0), TextDelta(*ids, text, len(PIECES), told_tokens()))
    if finish:
        link.say(finished(generate, len(PIECES)))


async def told_chat(pilot, link, *, finish=True):
    link.say(READY)
    await settle(pilot)
    await command(pilot, "/logprobs on")
    await pilot.press("a", "enter")
    tell(link, link.generates()[0], finish=finish)
    await draw(pilot)


async def test_a_chat_asks_from_its_next_reply_on(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await told_chat(pilot, link)
        assert link.generates()[0].overrides.logprobs == 5
        assert any("coloured" in toast for toast in toasts(app))
        await command(pilot, "/logprobs off")
        await pilot.press("b", "enter")
        assert link.generates()[1].overrides.logprobs is None


async def test_all_chats_ask_and_those_to_come(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await settle(pilot)
        await command(pilot, "/logprobs 9 all")
        assert [chat.overrides.logprobs for chat in app.desk.chats] == [9, 9]
        await command(pilot, "/new")
        assert app.desk.chats[-1].overrides.logprobs == 9
        await command(pilot, "/logprobs off all")
        assert [chat.overrides.logprobs for chat in app.desk.chats] == [None] * 3


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/logprobs 21", "The number of alternatives must be from 0 to 20, not 21."),
        ("/logprobs maybe", "The number of alternatives must be a whole number, not 'maybe'."),
        ("/logprobs on some", "/logprobs is for this chat or for all, not for 'some'."),
    ],
)
async def test_every_mistake_has_a_sentence(make_app, link, line, said):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await settle(pilot)
        await command(pilot, line)
        assert complaint(app) == f"{said} Type /logprobs [on|off|N] [all]"


def tints(transcript, row):
    """Text -> background and underline of the parts of a drawn row."""
    strip = transcript.render_line(row)
    return {
        segment.text.strip(): (segment.style.bgcolor, bool(segment.style.underline), bool(segment.style.bold))
        for segment in strip
        if segment.text.strip()
    }


async def test_what_is_less_sure_is_marked_by_colour_and_without_it(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await told_chat(pilot, link)
        found = tints(pane(app, 1).transcript, 1)
        grounds = {text: found[text][0] for text in ("The", "sea", "was", "blue")}
        assert len(set(grounds.values())) == 4, "four grounds that differ in lightness"
        assert [found[text][1:] for text in ("The", "was", "sea", "blue")] == [
            (False, False), (False, False), (True, False), (True, True)
        ]  # fmt: skip
        await command(pilot, "/logprobs off")
        await draw(pilot)
        assert list(tints(pane(app, 1).transcript, 1))[-1].endswith("The sea was blue."), "one run again"


async def test_the_panel_shows_the_token_under_the_cursor(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await told_chat(pilot, link)
        await pilot.press("alt+p")
        await draw(pilot)
        panel = pane(app, 1).alternatives
        assert panel.has_focus
        assert '"The" token 1 of 5 · 97.0%, rank 1 · sure' in drawn(panel)
        await pilot.press("right")
        await draw(pilot)
        text = drawn(panel)
        assert '" sea" token 2 of 5 · 30.0%, rank 2 · unsure' in text
        assert r'"\x1b[2J"' in text
        assert '" sea" (written)' in text
        reversed_ = [segment.text for segment in pane(app, 1).transcript.render_line(1) if segment.style.reverse]
        assert reversed_ == [" sea"]
        await pilot.press("alt+n", "ctrl+right")
        assert '" blue" token 4' in drawn(panel) or panel.place.token == 3
        await pilot.press("end", "right", "right")
        assert panel.place.token == 4
        await pilot.press("home")
        assert panel.place.token == 0


async def test_escape_puts_it_away_and_gives_the_keyboard_back(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await told_chat(pilot, link)
        await pilot.press("alt+p")
        await settle(pilot)
        await pilot.press("escape")
        await settle(pilot)
        assert not pane(app, 1).alternatives.display
        assert app.focused is pane(app, 1).composer
        assert not any(segment.style.reverse for segment in pane(app, 1).transcript.render_line(1))
        assert not any(isinstance(sent, Stop) for sent in link.sent)


async def test_the_footer_says_what_enter_and_escape_do_there(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await told_chat(pilot, link)
        bar = app.chats.query_one("KeyBar")
        await pilot.press("alt+p")
        await settle(pilot)
        assert drawn(bar).strip().startswith("Enter fork with it")
        assert "Enter send" not in drawn(bar)
        assert "Esc to the chat" in drawn(bar)
        await pilot.press("escape")
        await settle(pilot)
        assert "Enter send" in drawn(bar)


async def test_enter_forks_with_the_chosen_token(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await told_chat(pilot, link)
        await pilot.press("alt+p", "right")
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        fork, generate = link.sent[-3:-1]
        assert isinstance(fork, Fork)
        assert isinstance(generate, Generate)
        assert (fork.session_id, fork.new_session_id) == (1, 3)
        assert generate.session_id == 3
        assert generate.begun == [10, 51], "the likeliest that is not there"
        assert [turn.text for turn in generate.turns] == ["a"]
        assert [item.session.session_id for item in panes(app)] == [1, 3, 2]
        assert app.chats.focused_chat.session_id == 3
        ids = generate.session_id, generate.request_id
        places = [ToldToken(0, 3, 0, [10], [b"The"], b""), ToldToken(3, 8, 0, [51], [b" boat"], b"")]
        link.say(RequestStarted(*ids, 10, 10), TextDelta(*ids, "The boat left", 3, places))
        link.say(finished(generate, 3))
        await draw(pilot)
        assert "The boat left" in drawn(pane(app, 3).transcript)
        assert "The sea was blue." in drawn(pane(app, 1).transcript)
        assert app.desk.get(3).entries[-1].told[1].rank == 1
        await pilot.press("alt+p", "right")
        await draw(pilot)
        assert '" boat" token 2 of 2 · 60.0%, rank 1' in drawn(pane(app, 3).alternatives)


async def test_the_mouse_chooses_a_token_and_a_double_click_forks(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await told_chat(pilot, link)
        await pilot.click(pane(app, 1).transcript, offset=(6 + 9, 1))
        await draw(pilot)
        panel = pane(app, 1).alternatives
        assert (panel.place.turn, panel.place.token) == (1, 2)
        assert panel.has_focus
        await pilot.click(panel, offset=(6, 2), times=2)
        await settle(pilot)
        assert link.generates()[-1].begun == [10, 11, 53]


async def test_a_reply_that_is_being_written_can_be_forked_and_goes_on(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await told_chat(pilot, link, finish=False)
        await pilot.press("alt+p", "enter")
        await settle(pilot)
        assert link.generates()[-1].begun == [50]
        assert app.desk.get(1).busy
        assert not any(isinstance(sent, Stop) for sent in link.sent)


async def test_the_written_token_drawn_again_has_chance_of_its_own(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await told_chat(pilot, link)
        app.desk.get(1).set_sampling("seed", 7)
        await pilot.press("alt+p", "up", "enter")
        await settle(pilot)
        assert (link.generates()[-1].begun, link.generates()[-1].overrides.seed) == ([10], None)


@pytest.mark.parametrize(
    ("asked", "said"),
    [(False, "How sure the model was is not asked for in this chat."), (True, "There is no reply yet.")],
)
async def test_why_nothing_is_known_is_said(make_app, link, asked, said):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await settle(pilot)
        if asked:
            await command(pilot, "/logprobs on")
        await pilot.press("alt+p")
        assert any(said in toast for toast in toasts(app))


async def test_replies_of_an_earlier_run_are_said_to_be_unknown(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await pilot.press("a", "enter")
        link.reply(link.generates()[0], "one")
        await settle(pilot)
        await command(pilot, "/logprobs on")
        await pilot.press("alt+p")
        assert any("earlier run" in toast for toast in toasts(app))


async def test_what_is_typed_at_the_composer_goes_on_while_the_panel_is_open(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await told_chat(pilot, link)
        await pilot.press("alt+p")
        await settle(pilot)
        await pilot.click(pane(app, 1).composer)
        await pilot.press("o", "k")
        assert pane(app, 1).composer.text == "ok"
        assert pane(app, 1).alternatives.display
        await pilot.press("escape")
        await settle(pilot)
        assert not pane(app, 1).alternatives.display


async def test_what_is_typed_after_a_click_on_a_token_is_the_chat_s(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await told_chat(pilot, link)
        await pilot.click(pane(app, 1).transcript, offset=(6 + 9, 1))
        await draw(pilot)
        chosen = pane(app, 1).alternatives.place
        await pilot.press(*"no, wait")
        assert app.focused is pane(app, 1).composer
        assert app.focused.text == "no, wait"
        assert pane(app, 1).alternatives.place == chosen


async def test_unsure_tokens_are_a_key_away_in_both_directions(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await told_chat(pilot, link)
        await pilot.press("alt+p")
        panel = pane(app, 1).alternatives
        passed = []
        for key in ("alt+n", "ctrl+right", "ctrl+right", "ctrl+left", "ctrl+left"):
            await pilot.press(key)
            passed.append(panel.place.token)
        assert passed == [1, 2, 3, 2, 1], "all but the two of which it was sure"


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 50)])
def test_pictures(snap_compare, make_still_app, link, size):
    app = make_still_app(sessions=1)

    async def before(pilot):
        link.say(READY)
        await settle(pilot)
        app.desk.get(1).set_sampling("logprobs", 5)
        await pilot.press("a", "enter")
        tell(link, link.generates()[0])
        await draw(pilot)
        await pilot.press("alt+p", "alt+n")
        await draw(pilot)

    assert snap_compare(app, terminal_size=size, run_before=before)


async def test_in_ascii_everything_drawn_is(make_app, link):
    app = make_app(ascii=True)
    async with app.run_test(size=WIDE) as pilot:
        await told_chat(pilot, link)
        await pilot.press("alt+p")
        await draw(pilot)
        assert drawn(pane(app, 1).alternatives).isascii()

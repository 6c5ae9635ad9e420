"""Replies as Markdown in a pane: settings, keys, clicks, copies, and the blocks behind the text."""

import msgspec
import pytest
from textual.geometry import Offset
from textual.selection import Selection

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.tui.app import PagedChatApp, UiOptions
from pagedchat.tui.chat.composer import Composer
from pagedchat.view.chats.chat_tokens import Passage
from tests.fakes_tui import READY
from tests.tui.whole_app import drawn, pane, settle, write

CHATS = msgspec.structs.replace(READY, chat_template="model")
REPLY = """<think>
They want a *table*.
</think>

# Fish

The **boat** had `two` nets, see [the log](https://sea.example/log).

| day | fish |
|:----|-----:|
| mon |   12 |
| fri |    3 |

1. Row out
2. Come home
   - with the tide

```python
def fish(day):
    return 12  # or 3
```
> Nobody asked. \x1b[2J
"""


async def reply_in(pilot, link, text=REPLY, ready=CHATS, *, finish=True):
    link.say(ready)
    await write(pilot, "hi")
    await pilot.press("enter")
    link.reply(link.generates()[-1], text, finish=finish)
    await settle(pilot)
    return pane(pilot.app, 1).transcript


async def command(pilot, line):
    await write(pilot, line)
    await pilot.press("enter")
    await settle(pilot)


async def test_a_model_that_chats_is_drawn_as_markdown_and_one_that_goes_on_is_not(make_app, link):
    async with make_app(sessions=1).run_test(size=(80, 40)) as pilot:
        transcript = await reply_in(pilot, link)
        assert "# Fish" not in drawn(transcript)
        assert "day │ fish" in drawn(transcript)
        assert r"│ Nobody asked. \x1b[2J" in drawn(transcript)
        link.say(READY)
        pilot.app.chats.focused_chat.version += 1
        await settle(pilot)
        assert "# Fish" in drawn(transcript)
        assert "| day | fish |" in drawn(transcript)


@pytest.mark.parametrize(("options", "markdown"), [({"raw": True}, False), ({"markdown": "off"}, False)])
async def test_the_command_line_may_want_it_otherwise(make_app, link, options, markdown):
    async with make_app(sessions=1, **options).run_test(size=(80, 40)) as pilot:
        transcript = await reply_in(pilot, link)
        assert ("# Fish" not in drawn(transcript)) is markdown


async def test_markdown_is_switched_by_command_and_by_key(make_app, link):
    async with make_app(sessions=1).run_test(size=(80, 40)) as pilot:
        transcript = await reply_in(pilot, link)
        await command(pilot, "/markdown off")
        assert "# Fish" in drawn(transcript)
        await pilot.press("alt+m")
        await settle(pilot)
        assert "# Fish" not in drawn(transcript)
        await command(pilot, "/markdown maybe")
        assert pilot.app.chats.focused_chat.notice.message == "/markdown is on, off or auto, not 'maybe'."


async def test_thoughts_are_opened_by_key_click_and_setting(make_app, link):
    async with make_app(sessions=1).run_test(size=(80, 40)) as pilot:
        transcript = await reply_in(pilot, link)
        assert "► thought · 4 words" in drawn(transcript)
        await pilot.press("alt+t")
        await settle(pilot)
        assert "They want a *table*." in drawn(transcript)
        row = next(index for index, row in enumerate(transcript._rows) if "thought" in row.text)
        await pilot.click(transcript, offset=(12, row))
        await settle(pilot)
        assert "They want" not in drawn(transcript)
        await command(pilot, "/thoughts open")
        assert "▼ thought · 4 words" in drawn(transcript)
        await command(pilot, "/thoughts shut")
        assert pilot.app.chats.focused_chat.notice.message == "/thoughts are open or fold, not 'shut'."


async def test_code_and_the_whole_chat_are_copied_by_key(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=(80, 40)) as pilot:
        await pilot.press("alt+c", "alt+a")
        assert app.clipboard == ""
        await reply_in(pilot, link)
        await pilot.press("alt+c")
        assert app.clipboard == "def fish(day):\n    return 12  # or 3"
        await pilot.press("alt+a")
        assert app.clipboard.startswith("### you\n\nhi\n\n### ai\n\n<think>")


async def test_what_the_mouse_selects_is_text_without_borders(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=(80, 40)) as pilot:
        transcript = await reply_in(pilot, link)
        first = next(index for index, row in enumerate(transcript._rows) if row.text.startswith("day"))
        app.screen.selections = {transcript: Selection(Offset(6, first), None)}
        assert app.screen.get_selected_text() == (
            "day\tfish\n\nmon\t12\nfri\t3\n\n1. Row out\n2. Come home\n   • with the tide\n\n\n"
            "def fish(day):\n    return 12  # or 3\nNobody asked. \\x1b[2J"
        )


async def test_selected_text_is_the_source_that_it_shows(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=(80, 40)) as pilot:
        transcript = await reply_in(pilot, link)
        row = next(index for index, row in enumerate(transcript._rows) if "boat" in row.text)
        start = 6 + transcript._rows[row].text.index("boat")
        app.screen.selections = {transcript: Selection(Offset(start, row), Offset(start + 8, row))}
        (passage,) = transcript.selected_passages()
        assert REPLY[passage.start : passage.end] == "boat** had"[: passage.end - passage.start]
        assert passage.start == REPLY.index("boat")
        transcript.light([Passage(1, REPLY.index("two"), REPLY.index("two") + 3)])
        ((lit, spans),) = transcript._lit_spans.items()
        assert [transcript._rows[lit].text[low:high] for low, high in spans] == ["two"]


async def test_a_stream_leaves_finished_rows_alone(make_app, link):
    """What is finished is painted from the strips that were made for it."""
    async with make_app(sessions=1).run_test(size=(80, 40)) as pilot:
        transcript = await reply_in(pilot, link, "# Fish\n\nOne.\n\nTwo\n", finish=False)
        kept = [transcript._row_strip(index) for index in range(4)]
        generate = link.generates()[-1]
        from pagedchat.events import TextDelta

        link.say(TextDelta(generate.session_id, generate.request_id, "and more\n\n- three", 9))
        await settle(pilot)
        assert "• three" in drawn(transcript)
        assert [transcript._row_strip(index) for index in range(4)] == kept
        assert all(now is then for now, then in zip(transcript._strips, kept, strict=False))


async def test_scrolling_up_in_a_very_long_chat_moves_nothing_else(make_app, link, monkeypatch):
    monkeypatch.setattr("pagedchat.view.chats.chat_rows.MAX_AT_ONCE", 1000)
    async with make_app(sessions=1).run_test(size=(80, 24)) as pilot:
        transcript = await reply_in(pilot, link)
        chat = pilot.app.chats.focused_chat
        chat.entries *= 30
        chat.version += 1
        pilot.app.redraw()
        await pilot.pause()
        assert transcript.scroll_y == transcript.max_scroll_y
        pending = sum(row.kind == "pending" for row in transcript._rows)
        assert pending
        for _ in range(12):
            top = transcript.render_line(0).text
            transcript.scroll_page(-1)
            await pilot.pause()
            assert transcript.render_line(transcript.size.height - 2).text == top
            assert not any(
                transcript._rows[round(transcript.scroll_y) + y].kind == "pending"
                for y in range(transcript.size.height)
            )
        assert 0 < sum(row.kind == "pending" for row in transcript._rows) < pending


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light"])
@pytest.mark.parametrize("size", [(100, 34), (44, 46)], ids=["wide", "narrow"])
def test_look(snap_compare, link, monkeypatch, theme, size):
    monkeypatch.setattr(Composer, "cursor_blink", False)
    app = PagedChatApp(link, UiOptions(), PromptHistory(), clock=lambda: 100.0)

    async def run_before(pilot):
        await pilot.pause()
        app.theme = theme
        await reply_in(pilot, link)

    assert snap_compare(app, terminal_size=size, run_before=run_before)


async def test_signs_around_markdown_can_be_ascii(make_app, link):
    async with make_app(sessions=1, ascii=True).run_test(size=(80, 40)) as pilot:
        transcript = await reply_in(pilot, link)
        assert drawn(transcript).isascii()
        assert "day | fish" in drawn(transcript)


async def test_the_open_part_is_drawn_at_most_ten_times_a_second(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=(80, 40)) as pilot:
        await pilot.pause()
        part = next(part for part in app.chats.parts() if part.widget is pane(app, 1).transcript)
        assert part.seconds >= 0.1

"""A transcript stays at its end until somebody scrolls up."""

from pagedchat.events import TextDelta
from tests.fakes_tui import READY
from tests.tui.whole_app import drawn, pane, settle


async def test_scrolled_up_view_stays_and_end_returns(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=(80, 20)) as pilot:
        link.say(READY)
        await pilot.press("a", "enter")
        link.reply(link.generates()[0], "\n".join(map(str, range(60))), finish=False)
        await settle(pilot)
        transcript = pane(app, 1).transcript
        assert transcript.scroll_y == transcript.max_scroll_y > 0
        await pilot.press("pageup")
        at = transcript.scroll_y
        link.say(TextDelta(1, 1, "\nmore\nand more", 70))
        await settle(pilot)
        assert transcript.scroll_y == at
        assert "↓ new text" in drawn(transcript)
        await pilot.press("end")
        await pilot.pause()
        assert transcript.scroll_y == transcript.max_scroll_y
        assert "↓ new text" not in drawn(transcript)

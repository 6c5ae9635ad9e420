"""What the screen says of weights in few bits: the header which, an empty chat why, and how that is turned off."""

import msgspec

from pagedchat.tui.chat.header import header_line
from pagedchat.tui.chat.transcript import Transcript
from pagedchat.view.sentences.figures import engine_text
from tests.fakes_tui import READY, prefill

WHY = "Weights in 8 bits, since the model is large; --quantize none keeps all of theirs."
IN_8_BITS = msgspec.structs.replace(READY, quantization="int8", precision_reason=WHY)


async def test_header_and_empty_chat_say_it(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=(160, 40)) as pilot:
        link.say(IN_8_BITS, prefill(1, 0, 3))
        await pilot.pause(0.1)
        assert "int8 cuda:0" in header_line(app.view, "", 160).plain
        told = app.screen.query_one(Transcript)
        assert "--quantize none keeps all" in " ".join(row.text for row in told._rows)
        assert "weights in int8, float16 (Weights in 8 bits" in engine_text(app.view.live)


async def test_nothing_is_said_where_nothing_was_chosen(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=(160, 40)) as pilot:
        link.say(READY)
        await pilot.pause(0.1)
        assert "fp16 cuda:0" in header_line(app.view, "", 160).plain
        told = app.screen.query_one(Transcript)
        assert "--quantize" not in " ".join(row.text for row in told._rows)

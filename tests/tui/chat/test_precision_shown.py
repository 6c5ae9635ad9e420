"""What the screen says of weights in few bits: the header which, an empty chat why, and how that is turned off."""

import msgspec
import pytest

from pagedchat.tui.chat.header import header_line
from pagedchat.tui.chat.transcript import Transcript
from pagedchat.view.blocks.facts import block_facts
from pagedchat.view.blocks.page import page_lines
from pagedchat.view.sentences.figures import engine_text
from pagedchat.view.sentences.kernels import KERNELS
from tests.fakes_tui import READY, prefill
from tests.tui.whole_app import settle

WHY = "Weights in 8 bits, since the model is large; --quantize none keeps all of theirs."
IN_8_BITS = msgspec.structs.replace(READY, quantization="int8", precision_reason=WHY)


async def test_header_and_empty_chat_say_it(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=(160, 40)) as pilot:
        link.say(IN_8_BITS, prefill(1, 0, 3))
        await settle(pilot)
        assert "int8 cuda:0" in header_line(app.view, "", 160).plain
        told = app.screen.query_one(Transcript)
        assert "--quantize none keeps all" in " ".join(row.text for row in told._rows)
        assert "weights in int8, float16 (Weights in 8 bits" in engine_text(app.view.live)


async def test_nothing_is_said_where_nothing_was_chosen(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=(160, 40)) as pilot:
        link.say(READY)
        await settle(pilot)
        assert "fp16 cuda:0" in header_line(app.view, "", 160).plain
        told = app.screen.query_one(Transcript)
        assert "--quantize" not in " ".join(row.text for row in told._rows)


@pytest.mark.parametrize(("kernels", "words"), KERNELS.items())
async def test_what_steps_are_made_of_is_told(make_app, link, kernels, words):
    app = make_app(sessions=1)
    async with app.run_test(size=(160, 40)) as pilot:
        link.say(msgspec.structs.replace(READY, kernels=kernels), prefill(1, 0, 3))
        await settle(pilot)
        assert engine_text(app.view.live).splitlines()[0].endswith(f"on {READY.device}, {words}")


async def test_a_small_cache_is_named_with_what_a_block_saves(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=(170, 40)) as pilot:
        sizes = {"num_layers": 12, "block_size": 4, "num_kv_heads": 12, "head_dim": 64}
        small = {"kv_cache_dtype": "fp8", "block_bytes": 12 * 2 * 4 * 12 * 66}
        link.say(msgspec.structs.replace(READY, **sizes, **small), prefill(1, 0, 3))
        await settle(pilot)
        assert "fp8 cache" in header_line(app.view, "", 170).plain
        told = engine_text(app.view.live)
        assert "float16, cache in fp8" in told
        assert "takes 74.2 KiB, fp8, saves 69.8 KiB" in told
        page = "\n".join(page_lines(block_facts(app.view, app.view.shown.mirror, 0), 80))
        assert "74.2 KiB, fp8, saves 69.8 KiB at 0x0" in page

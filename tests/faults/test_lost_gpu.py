"""A kernel fails on a real GPU, after which nothing works there in this process any more."""

import pytest

from pagedchat.service.child import EXIT_CRASHED
from tests.faults.screens import screens
from tests.faults.test_engine_ends import answers
from tests.service.fake_engine import ENTRY

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("phase", ["prefill", "decode"])
async def test_a_kernel_that_fails_ends_the_engine_and_the_next_one_answers(phase, tmp_path):
    async with screens(tmp_path, (*ENTRY, "tests.faults.gated_engine:load_on_gpu")) as program:
        await program.until_ready()
        program.gates.order(phase, "trap a kernel")
        chat = program.ask("Tell me a sea story.")
        await program.until(program.died)
        assert program.died().exit_code == EXIT_CRASHED
        assert f"The engine ended (exit status {EXIT_CRASHED}, " in program.banners[-1]
        assert chat.notice.message.startswith("The engine crashed: ")
        assert "Tell me a sea story." in (chat.take_returned(), *(turn.text for turn in chat.turns))
        assert await answers(program)

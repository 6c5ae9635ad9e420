"""What text costs is the loop's time less the engine's, and what goes to the screen is counted."""

from itertools import count

import pytest

from pagedchat.bench.text_host import TextHostResult, measure_text_host


def test_text_is_what_the_process_does_beside_the_engine() -> None:
    result = TextHostResult(num_chats=4, num_steps=10, engine_us=30.0, loop_us=50.0, bytes_per_step=7.0)
    assert result.text_us_per_token == 5.0


@pytest.mark.parametrize("num_chats", [1, 8])
def test_steps_in_which_every_chat_decodes_are_timed(num_chats: int) -> None:
    ticks = count()
    result = measure_text_host(num_chats, num_steps=60, clock=lambda: next(ticks) * 1e-6)
    assert (result.num_chats, result.num_steps) == (num_chats, 60)
    assert result.engine_us == 1.0  # one tick from the beginning of each step to its end
    assert result.loop_us > 2.0  # and one before the next
    assert result.bytes_per_step > 50

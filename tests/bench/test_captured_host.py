"""The host's part of captured steps: what is timed is a run that was begun ahead."""

from itertools import count

import pytest

from pagedchat.bench.captured_host import CapturedHostResult, _engine, measure_captured_host
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.runtime.graphs.captured_runner import CapturedRunner


def test_a_token_is_a_chats_part_of_a_step() -> None:
    assert CapturedHostResult(num_chats=4, num_steps=10, step_us=30.0).us_per_token == 7.5


@pytest.mark.parametrize("num_chats", [1, 8])
def test_steps_are_timed_as_a_whole(num_chats: int) -> None:
    ticks = count()
    result = measure_captured_host(num_chats, num_steps=50, clock=lambda: next(ticks) * 50e-6)
    assert (result.num_chats, result.num_steps, result.step_us) == (num_chats, 50, 1.0)


def test_all_but_the_first_are_begun_ahead() -> None:
    core = _engine(3, 100)
    for number in range(3):
        params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
        core.extend(core.open(), [number + 3] * 5, params)
    for _ in range(30):
        core.step()
    assert isinstance(core.runner, CapturedRunner)
    decodes = core.runner.decodes
    assert decodes.num_ahead == decodes.num_replays - 2 == 28
    assert all(len(sequence) == 5 + 30 for sequence in core.sequences.values())

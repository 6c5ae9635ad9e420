import time

import pytest
import torch

from pagedchat.runtime.step_clock import StepClock


def test_each_phase_on_a_cpu() -> None:
    clock = StepClock(torch.device("cpu"))
    time.sleep(0.02)
    clock.mark()
    clock.mark()
    copy, forward, sample = clock.finish()
    assert 0.02 <= copy < 1
    assert 0 <= forward < 0.02
    assert 0 <= sample < 0.02


@pytest.mark.gpu
def test_work_on_the_gpu_counts_in_the_phase_that_queued_it() -> None:
    torch.cuda.synchronize()
    clock = StepClock(torch.device("cuda"))
    torch.cuda._sleep(100_000_000)  # clock cycles: tens of milliseconds
    clock.mark()
    copy, rest = clock.finish()
    assert copy > 0.01
    assert copy > rest

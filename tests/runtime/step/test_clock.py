import time

import pytest
import torch

from pagedchat.runtime.step.clock import StepClock


def test_each_phase_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([5.0, 5.25, 5.75, 6.75])
    monkeypatch.setattr(time, "perf_counter", lambda: next(times))
    clock = StepClock(torch.device("cpu"))
    clock.mark()
    clock.mark()
    assert clock.finish() == [0.25, 0.5, 1.0]


@pytest.mark.gpu
def test_work_on_the_gpu_counts_in_the_phase_that_queued_it() -> None:
    torch.cuda.synchronize()
    clock = StepClock(torch.device("cuda"))
    torch.cuda._sleep(100_000_000)  # clock cycles: tens of milliseconds
    clock.mark()
    copy, rest = clock.finish()
    assert copy > 0.01
    assert copy > rest

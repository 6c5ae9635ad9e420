from pagedchat.bench.step_host import measure_step_host


class Ticking:
    """A clock that moves one millisecond each time it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


def test_every_step_is_timed_and_decodes_every_sequence() -> None:
    result = measure_step_host(num_sequences=8, num_steps=40, prompt_tokens=20, clock=Ticking())
    assert (result.num_sequences, result.num_steps) == (8, 40)
    assert result.median_ms == result.p99_ms == result.max_ms == 1.0


def test_a_step_for_many_sequences_stays_within_its_budget() -> None:
    result = measure_step_host(num_sequences=256, num_steps=50)
    assert 0 < result.median_ms < 5.0  # 1 ms is the goal; a loaded machine gets some room

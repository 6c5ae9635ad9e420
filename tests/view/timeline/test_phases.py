"""Where a step's time went: phases in order, in cells and in words."""

import msgspec
import pytest

from pagedchat.events import Timings
from pagedchat.view.timeline.phases import Phase, fitting_phases, phase_cells, step_phases


def test_phases_add_up_to_the_whole_step() -> None:
    measured = Timings(0.001, 0.002, 0.010, 0.003, 0.001, launch=0.002, attention=0.004)
    for timings in (measured, msgspec.structs.replace(measured, attention=0.0)):
        assert sum(phase.seconds for phase in step_phases(timings)) == pytest.approx(timings.total)
    assert [phase.name for phase in step_phases(measured)][3:5] == ["attention", "products"]
    assert Phase("forward", 0.010) in step_phases(msgspec.structs.replace(measured, attention=0.0))


def test_the_bar_is_filled_exactly() -> None:
    phases = [Phase("schedule", 0.1), Phase("copy", 0.0), Phase("forward", 0.8), Phase("sample", 0.1)]
    assert phase_cells(phases, 20) == [2, 0, 16, 2]
    assert sum(phase_cells(phases, 7)) == 7
    assert phase_cells(phases, 0) == phase_cells([Phase("copy", 0.0)] * 4, 9) == [0, 0, 0, 0]


def test_short_phases_leave_the_legend_first() -> None:
    phases = [Phase("schedule", 0.001), Phase("copy", 0.0), Phase("forward", 0.008), Phase("sample", 0.002)]
    names = [phase.name for phase in fitting_phases(phases, 30)]
    assert names == ["forward", "sample"]
    assert fitting_phases(phases, 3) == []

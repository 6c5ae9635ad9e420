"""Leads through the tour: runs one step's script at a time on what the engine reports. Knows no widget."""

from collections.abc import Callable, Sequence
from itertools import islice

from pagedchat.events import StepReport
from pagedchat.view.engine_view import EngineView
from pagedchat.view.state.engine import EngineState
from pagedchat.view.tour.pressure_steps import STEPS as PRESSURE_STEPS
from pagedchat.view.tour.script import Script, TourStep
from pagedchat.view.tour.sharing_steps import STEPS as SHARING_STEPS
from pagedchat.view.tour.stage import Stage

STEPS = (*SHARING_STEPS, *PRESSURE_STEPS)
PATIENCE = 30.0
"""Seconds after which a step says what it is waiting for."""


class TourGuide:
    """Where the tour stands.

    Args:
        view: what the engine tells.
        stage: what the scripts may do.
        clock: seconds.
        steps: what is shown, in order.
    """

    def __init__(
        self, view: EngineView, stage: Stage, clock: Callable[[], float], steps: Sequence[TourStep] = STEPS
    ) -> None:
        self._view = view
        self._clock = clock
        self.stage = stage
        self.steps = steps
        self.position = 0
        self.found: list[str] = [""] * len(steps)
        """What each step has shown; empty until it has."""
        self._script: Script | None = None
        self._engine: EngineState | None = None
        self._num_seen = 0
        self._begun = 0.0

    # --- reading ------------------------------------------------------------------------------------

    @property
    def step(self) -> TourStep:
        """The step at hand."""
        return self.steps[self.position]

    @property
    def is_last(self) -> bool:
        """Whether no step comes after this one."""
        return self.position == len(self.steps) - 1

    @property
    def state_text(self) -> str:
        """What came of the step, or what it waits for."""
        if self._view.live is None:
            return "The engine is not running; the step begins anew when it is."
        if self.found[self.position]:
            return self.found[self.position]
        if self._clock() - self._begun > PATIENCE:
            return f"Still waiting for {self.step.awaited}. Enter goes on without it."
        return "Watch …"

    # --- going --------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The first step."""
        self.stage.begin()
        self._start()

    def next(self) -> bool:
        """On to the next step; false after the last."""
        if self.is_last:
            return False
        self._go(self.position + 1)
        return True

    def back(self) -> None:
        """To the step before, and what it has shown."""
        self._go(max(0, self.position - 1))

    def _go(self, position: int) -> None:
        """A step that has shown its thing is not run again."""
        if position == self.position:
            return
        self._drop_script()
        self.position = position
        if not self.found[position]:
            self._start()

    def leave(self) -> None:
        """The end, wherever it stands: everything is put back."""
        self._drop_script()
        self.stage.restore()

    # --- watching -----------------------------------------------------------------------------------

    def look(self) -> None:
        """Hand what the engine has reported since the last look to the script."""
        if self._view.live is not self._engine:
            self._drop_script()
            if self._view.live is not None and not self.found[self.position]:
                self._start()
        reports = self._new_reports()
        for report in reports:
            self.stage.note(report)
            self._advance(report)
        if not reports:
            self._advance(None)

    def _new_reports(self) -> list[StepReport]:
        live = self._view.live
        if live is None:
            return []
        num_new = min(live.mirror.num_reports - self._num_seen, len(live.history))
        self._num_seen = live.mirror.num_reports
        return list(islice(live.history, len(live.history) - num_new, None))

    def _start(self) -> None:
        live = self._view.live
        if live is None:
            return
        self._engine, self._num_seen, self._begun = live, live.mirror.num_reports, self._clock()
        self._script = self.step.script(self.stage)
        self._advance(None)

    def _advance(self, report: StepReport | None) -> None:
        """A script that has just been made takes no report: nothing had been asked of the engine."""
        if self._script is None:
            return
        try:
            self._script.send(report)
        except StopIteration as shown:
            self.found[self.position] = shown.value
            self._script = None

    def _drop_script(self) -> None:
        if self._script is not None:
            self._script.close()
            self._script = None

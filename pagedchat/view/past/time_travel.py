"""Going back to any recorded step, and to the present again. Knows the recording, draws nothing.

The engine goes on meanwhile; what it does is recorded too, so `last` moves. Moves are by steps: a step stands for
everything that was reported with it, commands obeyed after it included.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from pagedchat.trace.format import TraceError
from pagedchat.trace.notable import event_after, event_before
from pagedchat.trace.recording import Recording
from pagedchat.trace.saving import save_recording
from pagedchat.view.past.states import PastStates
from pagedchat.view.state.engine import EngineState


class Showing(Protocol):
    """What time travel needs to know of a view."""

    past: EngineState | None
    travel: "TimeTravel | None"

    @property
    def quiet_seconds(self) -> float:
        """How long ago the live engine last reported anything."""

    def show_past(self, state: EngineState) -> None:
        """Show the engine as it was."""

    def show_live(self) -> None:
        """Back to the engine as it is."""


class TimeTravel:
    """Puts past states into the view.

    Args:
        view: what the widgets read; it gets to know its time travel.
        recording: what there is to go back to at this moment.
        has_live: whether there is a present to come back to; in a replay the end stands for it.
    """

    def __init__(self, view: Showing, recording: Callable[[], Recording | None], *, has_live: bool = True) -> None:
        self.view = view
        self.has_live = has_live
        self._recording = recording
        self._states: PastStates | None = None
        self._at = 0
        """The position shown, where it is the past."""
        self._step = 0
        self._aims: list[int | None] = []
        """Where moves that have been asked for and not been made yet lead, in their order."""
        view.travel = self

    # --- where one is -------------------------------------------------------------------------------

    @property
    def is_recorded(self) -> bool:
        """Whether there is anything to go back to."""
        return self._recording() is not None

    @property
    def recording(self) -> Recording:
        """All that there is to go back to.

        Raises:
            TraceError: nothing has been recorded yet.
        """
        recording = self._recording()
        if recording is None:
            raise TraceError("Nothing has been recorded yet.", "Recording begins when the engine is ready.")
        return recording

    @property
    def first(self) -> int:
        """The first step that can be gone to."""
        return self.recording.first_step

    @property
    def last(self) -> int:
        """The last step recorded."""
        return self.recording.last_step

    @property
    def position(self) -> int | None:
        """The step shown, or None where it is the present."""
        return None if self.view.past is None else self._step

    @property
    def seconds_ago(self) -> float:
        """How long the step shown lies back: from now where there is a present, else from the end."""
        if (past := self.view.past) is None:
            return 0.0
        recording = self.recording
        at_end = recording.report(recording.end).time if recording.end > recording.first else 0.0
        then = past.mirror.last.time if past.mirror.last is not None else 0.0
        return max(0.0, at_end - then) + (self.view.quiet_seconds if self.has_live else 0.0)

    # --- moves --------------------------------------------------------------------------------------

    def goto(self, step: int) -> None:
        """Show the engine as it was after a step.

        Raises:
            TraceError: the step is not recorded, or damaged.
        """
        self._arrive(step)
        self._check(step)
        recording = self.recording
        if self._states is None or self._states.recording is not recording:
            self._states = PastStates(recording)
        at = recording.position_of(step)
        self.view.show_past(self._states.at(at))
        self._at, self._step = at, step

    def live(self) -> None:
        """Back to the present; in a replay to the end."""
        if self.has_live:
            self._arrive(None)
            self.view.show_live()
        else:
            self.goto(self.last)

    def back(self, count: int = 1) -> None:
        """So many steps back, to the first one at most."""
        self._go(self.step_before(count))

    def forward(self, count: int = 1) -> None:
        """So many steps forward; past the last one lies the present."""
        self._go(self.step_after(count))

    def previous_event(self) -> None:
        """To the last step before with an event besides blocks filling up.

        Raises:
            TraceError: there is none.
        """
        self._go(self.event_step_before())

    def next_event(self) -> None:
        """To the next step with such an event.

        Raises:
            TraceError: there is none.
        """
        self._go(self.event_step_after())

    def _go(self, step: int | None) -> None:
        if step is None:
            self.live()
        else:
            self.goto(step)

    # --- where the moves lead -----------------------------------------------------------------------

    def aim(self, step: int | None) -> None:
        """Somebody has asked for a step, and `goto` or `live` will be called for it: what is asked for next counts
        from there. So keys that come faster than steps are shown lose nothing."""
        self._aims.append(step)

    def _arrive(self, step: int | None) -> None:
        if step in self._aims:
            del self._aims[: self._aims.index(step) + 1]

    @property
    def _here(self) -> int | None:
        """Where the moves asked for so far lead."""
        return self._aims[-1] if self._aims else self.position

    def step_before(self, count: int) -> int:
        """The step that `back` goes to."""
        here = self.last if self._here is None else self._here
        return max(self.first, here - count)

    def step_after(self, count: int) -> int | None:
        """The step that `forward` goes to; None is the present."""
        step = self.last + 1 if self._here is None else self._here + count
        if step <= self.last:
            return step
        return None if self.has_live else self.last

    def event_step_before(self) -> int:
        """The step that `previous_event` goes to."""
        recording = self.recording
        here = self.last + 1 if self._here is None else self._here
        found = event_before(recording, recording.position_of(here - 1) + 1) if here > self.first else None
        if found is None:
            raise TraceError(f"No event is recorded before step {min(here, self.last)}.", self._range())
        return recording.step_at(found)

    def event_step_after(self) -> int:
        """The step that `next_event` goes to."""
        recording = self.recording
        here = self.last if self._here is None else self._here
        found = event_after(recording, recording.position_of(here))
        if found is None:
            raise TraceError(f"No event is recorded after step {here}.", self._range())
        return recording.step_at(found)

    # --- files --------------------------------------------------------------------------------------

    def save(self, path: Path) -> int:
        """Write everything recorded so far to a new file.

        Returns:
            Its bytes.

        Raises:
            TraceError: there is nothing yet, the file exists already, or it cannot be written.
        """
        return save_recording(self.recording, Path(path).expanduser())

    def _check(self, step: int) -> None:
        if step > self.last:
            raise TraceError(f"Step {step} is beyond the end.", self._range())
        if step < self.first:
            reason = "is not recorded any more" if step >= 0 else "is before the beginning"
            raise TraceError(f"Step {step} {reason}.", self._range())

    def _range(self) -> str:
        return f"Steps {self.first} to {self.last} are recorded."

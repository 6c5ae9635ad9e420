"""One step looked at closely: who was in the batch, what it moved, where its time went, all that happened."""

from pathlib import PurePath
from typing import ClassVar

import msgspec
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from pagedchat.events import StepReport
from pagedchat.tui.inspector.timeline.phase_bar import PhaseBar
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.words import to_ascii
from pagedchat.view.timeline.step_story import find_report, step_story


class StepDetail(ModalScreen[int | None]):
    """A recorded step, and its neighbours; gives back the step that is to be gone to, if any."""

    CSS_PATH: ClassVar[str | PurePath | list[str | PurePath] | None] = "step_detail.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "leave", "Close"),
        Binding("comma,left,h", "turn(-1)", "Step before"),
        Binding("full_stop,right,l", "turn(1)", "Step after"),
        Binding("g", "go_there", "Time travel to the step"),
        Binding("y", "copy", "Copy as JSON"),
    ]

    def __init__(self, view: EngineView, step: int) -> None:
        super().__init__()
        self.view = view
        self.step = step
        self._text = Static("", markup=False)
        self._phases = PhaseBar()
        self._box = VerticalScroll(self._phases, self._text)

    def compose(self) -> ComposeResult:
        """One box."""
        yield self._box

    def on_mount(self) -> None:
        """Begin with the step that was asked for."""
        self._box.border_subtitle = self._plain(", . step before and after · g time travel · y copy · Esc closes")
        self._show()

    @property
    def report(self) -> StepReport | None:
        """What is known of the step; None once it is forgotten."""
        return find_report(self.view, self.step)

    def action_turn(self, steps: int) -> None:
        """The next recorded step, or the one before."""
        recorded = [report.step for report in self.view.history if report.batch]
        if steps > 0:
            self._turn_to(next((step for step in recorded if step > self.step), None))
        else:
            self._turn_to(next((step for step in reversed(recorded) if step < self.step), None))

    def _turn_to(self, step: int | None) -> None:
        if step is not None:
            self.step = step
            self._show()
            self._box.scroll_home(animate=False)

    def action_go_there(self) -> None:
        """Close, and show the engine as it was after this step."""
        self.dismiss(self.step)

    def action_leave(self) -> None:
        """Close."""
        self.dismiss(None)

    def action_copy(self) -> None:
        """The step's report as JSON."""
        if self.report is not None:
            self.app.copy_to_clipboard(msgspec.json.encode(self.report).decode())
            self.app.notify(f"Copied step {self.step} as JSON.", timeout=3)

    def _show(self) -> None:
        report = self.report
        self._box.border_title = Content(f"Step {self.step}" + (f" at {report.time:.2f} s" if report else ""))
        self._phases.show_timings(report.timings if report else None)
        lines = step_story(self.view, report) if report else ["This step is no longer kept."]
        self._text.update(Content(self._plain("\n".join(lines))))

    def _plain(self, text: str) -> str:
        return to_ascii(text) if getattr(self.app, "ascii", False) else text

"""Where in the recording one is: a line under the panels, from the first recorded step to the last.

It shows a view's time travel and posts where to go; whoever hears `StepChosen` goes there. A click or a drag on the
bar chooses a step; while the mouse moves, only its last place is posted every so often.
"""

from collections.abc import Callable
from typing import NamedTuple

from textual import events
from textual.content import Content
from textual.widget import Widget

from pagedchat.errors import PagedChatError
from pagedchat.tui.kit.lines import FAINT, MUTED, text
from pagedchat.tui.messages import StepChosen
from pagedchat.view.engine_view import EngineView
from pagedchat.view.past.time_travel import TimeTravel

DRAG_SECONDS = 0.05
MIN_TRACK = 10
"""Cells below which there is no bar, only words."""


class Glyphs(NamedTuple):
    """What the bar is drawn with."""

    live: str
    past: str
    left: str
    line: str
    knob: str
    right: str


GLYPHS = Glyphs("►", "◄", "├", "─", "●", "┤")
ASCII_GLYPHS = Glyphs(">", "<", "[", "-", "O", "]")


class ScrubBar(Widget):
    """One line: live or past and at which step, the bar, what is recorded."""

    DEFAULT_CSS = """
    ScrubBar { height: 1; width: 1fr; padding: 0 1; }
    """

    def __init__(self, view: EngineView) -> None:
        super().__init__()
        self.view = view
        self._drawn: Content | None = None
        self._track = range(0)
        """Cells of the bar between its two ends."""
        self._dragged_to: int | None = None
        """The cell that is to be posted next."""

    @property
    def _travel(self) -> TimeTravel | None:
        travel = self.view.travel
        return travel if travel is not None and travel.is_recorded else None

    # --- drawing ------------------------------------------------------------------------------------

    def refresh_view(self) -> None:
        """Follow the engine."""
        if self._drawn is None or not self._line().is_same(self._drawn):
            self.refresh()

    def render(self) -> Content:
        """The line."""
        self._drawn = self._line()
        return self._drawn

    def _line(self) -> Content:
        width, travel = self.content_size.width, self._travel
        if travel is None:
            self._track = range(0)
            return text("nothing recorded yet", FAINT).truncate(max(0, width))
        glyphs = ASCII_GLYPHS if getattr(self.app, "ascii", False) else GLYPHS
        whose = text(f"{self.view.called} ", "bold") if self.view.called else text("")
        left = Content.assemble(whose, _where(travel, glyphs))
        right = text(f" {travel.first}–{travel.last}" if travel.last else "", MUTED)
        if glyphs is ASCII_GLYPHS:
            right = text(right.plain.replace("–", "-"), MUTED)
        room = width - left.cell_length - right.cell_length - 3
        if room < MIN_TRACK:
            self._track = range(0)
            return left.truncate(max(0, width))
        begin = left.cell_length + 2
        self._track = range(begin, begin + room)
        return Content.assemble(left, " ", self._bar(travel, glyphs), right)

    def _bar(self, travel: TimeTravel, glyphs: Glyphs) -> Content:
        cells, at = len(self._track), self._cell_of(travel)
        style = "$text-success" if travel.position is None else "bold $text-warning"
        return Content.assemble(
            (glyphs.left + glyphs.line * at, FAINT),
            (glyphs.knob, style),
            (glyphs.line * (cells - at - 1) + glyphs.right, FAINT),
        )

    def _cell_of(self, travel: TimeTravel) -> int:
        """Where on the bar the step shown lies."""
        first, last = travel.first, travel.last
        step = last if travel.position is None else travel.position
        return round((step - first) / max(1, last - first) * (len(self._track) - 1))

    # --- the mouse ----------------------------------------------------------------------------------

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Go to the step under the mouse, and follow it."""
        if self._track:
            self.capture_mouse()
            self._drag_to(event)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Follow the mouse while its button is down."""
        if self.app.mouse_captured is self:
            self._drag_to(event)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """Let go."""
        self.release_mouse()

    def _drag_to(self, event: events.MouseEvent) -> None:
        waiting = self._dragged_to is not None
        self._dragged_to = event.x - self.gutter.left
        if not waiting:
            self.set_timer(DRAG_SECONDS, self._post_dragged)

    def _post_dragged(self) -> None:
        cell, self._dragged_to = self._dragged_to, None
        if cell is not None and self._track and (travel := self._travel) is not None:
            self.post_message(StepChosen(self._step_at(cell, travel)))

    def _step_at(self, cell: int, travel: TimeTravel) -> int | None:
        """The step that a cell stands for; past the right end lies the present."""
        if travel.has_live and cell >= self._track.stop - 1:
            return None
        share = (cell - self._track.start) / max(1, len(self._track) - 1)
        return travel.first + round(min(1.0, max(0.0, share)) * (travel.last - travel.first))

    # --- keys, called by whoever binds them ---------------------------------------------------------

    def action_step_back(self, count: int = 1) -> None:
        """So many steps into the past."""
        self._post(lambda travel: travel.step_before(count))

    def action_step_forward(self, count: int = 1) -> None:
        """So many steps towards the present, and into it."""
        self._post(lambda travel: travel.step_after(count))

    def action_previous_event(self) -> None:
        """To the step of the last event before."""
        self._post(lambda travel: travel.event_step_before())

    def action_next_event(self) -> None:
        """To the step of the next event."""
        self._post(lambda travel: travel.event_step_after())

    def action_first(self) -> None:
        """To the first recorded step."""
        self._post(lambda travel: travel.first)

    def action_live(self) -> None:
        """To the present; in a replay to the end."""
        self._post(lambda travel: None if travel.has_live else travel.last)

    def _post(self, where: Callable[[TimeTravel], int | None]) -> None:
        """Post where the move leads, or say why it leads nowhere."""
        try:
            if (travel := self._travel) is not None:
                step = where(travel)
                travel.aim(step)
                self.post_message(StepChosen(step))
        except PagedChatError as error:
            self.notify(str(error), severity="warning")


def _where(travel: TimeTravel, glyphs: Glyphs) -> Content:
    """Live or past, and at which step."""
    if travel.position is None:
        return Content.assemble(("LIVE ", "bold $text-success"), (glyphs.live, "$text-success"), f" {travel.last}")
    sign, since = ("PAST ", "ago") if travel.has_live else ("REPLAY ", "before the end")
    return Content.assemble(
        (sign, "bold $text-warning"),
        (glyphs.past, "$text-warning"),
        f" {travel.position}",
        (f" of {travel.last} ({_duration(travel.seconds_ago)} {since})", MUTED),
    )


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"

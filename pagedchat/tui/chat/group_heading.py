"""The line over a group of panes where there are two: which model answers there, and how its engine is."""

from textual.content import Content
from textual.widget import Widget

from pagedchat.chat.sanitize import one_line
from pagedchat.tui.chat.header import precision_and_device
from pagedchat.tui.engine_group import EngineGroup
from pagedchat.tui.kit.lines import FAINT, MUTED, PLAIN, LinePart, content_to_ascii, join, text
from pagedchat.view.sentences.engine_words import progress_words, why_it_ended
from pagedchat.view.sentences.server_words import header_figures
from pagedchat.view.sentences.words import count
from pagedchat.view.state.server import ServerState


class GroupHeading(Widget):
    """Draws itself anew only when it has something else to say."""

    DEFAULT_CSS = """
    GroupHeading { dock: top; height: 1; padding: 0 1; background: $surface; display: none; }
    """

    def __init__(self, group: EngineGroup) -> None:
        super().__init__()
        self._group = group
        self._active = False
        self._drawn: Content | None = None

    def show(self, wanted: bool, *, active: bool) -> None:
        """Be seen, or not; the group of the active chat stands out."""
        self.display = wanted
        if active != self._active:
            self._active = active
            self.refresh()

    def refresh_view(self) -> None:
        """Take over what changed in the engine."""
        if self._drawn is None or not self._line().is_same(self._drawn):
            self.refresh()

    def render(self) -> Content:
        """The line, cut to the width."""
        self._drawn = self._line()
        return self._drawn

    def _line(self) -> Content:
        line = heading_line(self._group, self.content_size.width, active=self._active)
        return content_to_ascii(line) if getattr(self.app, "ascii", False) else line


def heading_line(group: EngineGroup, width: int, *, active: bool) -> Content:
    """The model's name, and what is to be said of its engine; `►` where header and panels are about it."""
    name = group.view.called or one_line(group.name)
    sign, style = ("► ", "bold $text-primary") if active else ("  ", f"bold {PLAIN}")
    parts = [LinePart(0, Content.assemble((sign, "$text-primary"), (name, style))), *_state(group)]
    return join(parts, width)


def _state(group: EngineGroup) -> list[LinePart]:
    trouble = _why_not_ready(group)
    if trouble is not None:
        return [LinePart(0, trouble)]
    if group.view.server is not None:
        return _server_state(group, group.view.server)
    view, live = group.view, group.view.present
    parts = [LinePart(2, text(precision_and_device(live.info), MUTED))]
    if view.past is not None:
        return [*parts, LinePart(0, text(f"as of step {view.past.step:,}", "$text-warning"))]
    if view.broken is not None:
        parts.append(LinePart(0, text("‼ its books disagree", "bold $text-error")))
    if view.paused:
        return [*parts, LinePart(0, text("║ paused", "bold $text-warning"))]
    busy = group.desk.num_busy > 0
    speed = f"{live.tokens_per_second:.0f} tok/s" if busy else "idle"
    return [*parts, LinePart(1, text(speed, MUTED if busy else FAINT))]


def _server_state(group: EngineGroup, server: ServerState) -> list[LinePart]:
    told = [LinePart(2, text(words, MUTED)) for words in header_figures(server)]
    busy = group.desk.num_busy > 0
    speed = f"{server.tokens_per_second:.0f} tok/s" if busy else "idle"
    return [*told, LinePart(1, text(speed, MUTED if busy else FAINT))]


def _why_not_ready(group: EngineGroup) -> Content | None:
    """Why there is no engine yet, or no more; None where there is one."""
    view, died = group.view, group.bridge.died
    if view.failure is not None:
        what = "could not start" if group.server is None else "away"
        return text(f"{what}: {one_line(view.failure.message)}", "$text-error")
    if died is not None and not died.next_model:
        then = "it is started again" if died.restarting else "it ends too often"
        return text(f"ended ({why_it_ended(died)}), {then}", "$text-warning")
    if view.live is not None or view.server is not None:
        return None
    if view.choice is not None:
        return text(f"{count(len(view.choice.names), 'model')}: ^L chooses one", "$text-warning")
    if group.started is None:
        return text("waits until the other one is loaded", MUTED)
    return text(one_line(progress_words(view.loading)) if view.loading else "starting", MUTED)

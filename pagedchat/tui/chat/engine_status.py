"""What is to be said about an engine that is not simply running: it loads, failed to start, died, or lost count."""

from typing import Literal, NamedTuple

from textual.content import Content
from textual.widget import Widget

from pagedchat.chat.sanitize import drawable, one_line
from pagedchat.events import Attachment, EngineDied, EngineFailed, IntegrityBroken, LoadProgress, ServerModels
from pagedchat.tui.kit.lines import FAINT, MUTED, LinePart, bar, join, text
from pagedchat.view.engine_view import EngineView
from pagedchat.view.key_names import with_keys
from pagedchat.view.sentences.engine_words import progress_amount, why_it_ended
from pagedchat.view.sentences.words import count
from pagedchat.view.state.invariant import picture_holds

_BAR_CELLS = 24


class Status(NamedTuple):
    """How it looks, and what it says."""

    look: Literal["none", "loading", "died", "failed", "broken"]
    content: Content


class StatusBanner(Widget):
    """Takes no room while there is nothing to say."""

    DEFAULT_CSS = """
    StatusBanner {
        height: auto;
        padding: 0 1;
        display: none;
        &.-loading { display: block; background: $primary 15%; }
        &.-died { display: block; background: $warning 25%; }
        &.-broken { display: block; background: $error 25%; }
        &.-failed {
            display: block;
            padding: 1 2;
            border: round $error;
            background: $error 10%;
        }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._status = Status("none", Content(""))

    def show(self, status: Status) -> None:
        """Show this status from now on."""
        if status == self._status:
            return
        height_changed = status.look != self._status.look or status.look == "failed"
        self._status = status
        self.set_classes("" if status.look == "none" else f"-{status.look}")
        self.refresh(layout=height_changed)

    def render(self) -> Content:
        """The banner's text."""
        return self._status.content


def engine_status(
    view: EngineView, died: EngineDied | None, elapsed: float, width: int, *, elsewhere: bool = False
) -> Status:
    """The status to show; `elapsed` seconds since the engine was started, or started again.

    `elsewhere` says that it is a server, not an engine of this machine.
    """
    if trouble := _why_not_ready(view, died, elapsed, width, elsewhere):
        return trouble
    if view.broken is not None:
        return Status("broken", _broken(view.broken, width))
    if view.server is None and not picture_holds(view):
        return Status(
            "broken", text("‼ The cache as it is drawn here does not agree with the engine's own counts.")
        )
    return Status("none", Content(""))


def _why_not_ready(
    view: EngineView, died: EngineDied | None, elapsed: float, width: int, elsewhere: bool
) -> Status | None:
    """Why there is no engine yet, or no more; None where there is one."""
    if view.failure is not None:
        told = _away(view.failure, second=bool(view.called)) if elsewhere else _failed(view, view.failure)
        return Status("failed", told)
    if view.attachment is not None and view.attachment.lost:
        return Status("died", _lost(view.attachment, width))
    if died is not None and not died.next_model:
        return Status("died", _died(died, view.loading, width))
    if view.choice is not None:
        return Status("loading", _choice(view.choice, width))
    if view.info is not None:
        return None
    return Status("loading", loading_line(view.loading, elapsed, width, elsewhere=elsewhere))


def loading_line(progress: LoadProgress | None, elapsed: float, width: int, *, elsewhere: bool = False) -> Content:
    """Stage, bar and seconds. Prompts may be written meanwhile."""
    message = one_line(progress.message) if progress else "Starting the engine"
    parts = [LinePart(0, text(message or "Loading", "bold"))]
    if progress is not None and progress.total > 0:
        share = progress.done / progress.total
        parts.append(LinePart(2, bar(share, _BAR_CELLS, "$primary")))
        parts.append(LinePart(1, text(progress_amount(progress), MUTED)))
    parts.append(LinePart(3, text(f"{elapsed:.0f} s", MUTED)))
    who = "server" if elsewhere else "engine"
    parts.append(LinePart(4, text(f"write already; it is sent when the {who} is ready", FAINT)))
    return join(parts, width)


def _failed(view: EngineView, failure: EngineFailed) -> Content:
    leaves = "/model --close closes it" if view.called else "^Q quits"
    if view.attached_to:
        what, ways = f"Not attached to {one_line(view.attached_to)}\n", "F12 tries again"
    else:
        what, ways = "The engine could not start\n", "F12 tries again · ^L loads another model"
    return Content.assemble(
        (what, "bold $text-error"),
        drawable(failure.message),
        (f"\n{drawable(failure.hint)}" if failure.hint else "", MUTED),
        (with_keys(f"\n{ways} · {leaves}"), FAINT),
    )


def _away(failure: EngineFailed, *, second: bool) -> Content:
    """A server that cannot be used now; what is written to it is kept."""
    leaves = "/server --close closes it" if second else "^Q quits"
    hint = f" {drawable(failure.hint)}" if failure.hint else ""
    return Content.assemble(
        (drawable(failure.message), "bold $text-error"),
        (hint, MUTED),
        (with_keys(f"\nF12 asks again, and so does the next prompt · the chats are kept · {leaves}"), FAINT),
    )


def _choice(choice: ServerModels, width: int) -> Content:
    many = count(len(choice.names), "model")
    parts = [
        LinePart(0, text(f"{one_line(choice.server)} has {many}", "bold")),
        LinePart(0, text(with_keys("^L chooses one"))),
        LinePart(1, text("write already; it is sent when one is chosen", FAINT)),
    ]
    return join(parts, width)


def _died(died: EngineDied, progress: LoadProgress | None, width: int) -> Content:
    next_step = (
        "starting it again …" if died.restarting else with_keys("it ends too often; F12 starts it again, ^Q quits")
    )
    if died.restarting and progress is not None:
        next_step = f"{one_line(progress.message)} …"
    parts = [
        LinePart(0, text(f"The engine ended ({why_it_ended(died)})", "bold")),
        LinePart(1, text(next_step)),
        LinePart(2, text("the chats are kept", MUTED)),
    ]
    if died.log_file:
        parts.append(LinePart(3, text(f"log: {one_line(died.log_file)}", MUTED)))
    return join(parts, width, " · ")


def _lost(attachment: Attachment, width: int) -> Content:
    parts = [
        LinePart(0, text(f"No connection to {one_line(attachment.where)}: {one_line(attachment.lost)}", "bold")),
        LinePart(1, text("trying again …")),
        LinePart(2, text("replies go on there; what you ask is sent then", MUTED)),
    ]
    return join(parts, width, " · ")


def _broken(broken: IntegrityBroken, width: int) -> Content:
    parts = [
        LinePart(0, text(f"‼ The engine's books disagree since step {broken.step}", "bold")),
        LinePart(1, text(one_line(broken.message))),
        LinePart(
            2, text(f"all that is known: {one_line(broken.dump)}" if broken.dump else "no dump was written", MUTED)
        ),
    ]
    return join(parts, width, " · ")

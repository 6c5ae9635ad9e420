"""The tour's box at the foot of a screen: what is shown now, and what came of it. It posts where to go."""

from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from pagedchat.chat.sanitize import drawable
from pagedchat.tui.actions import KeyAction
from pagedchat.tui.kit.lines import MUTED, content_to_ascii
from pagedchat.view.key_names import with_keys

if TYPE_CHECKING:
    from pagedchat.view.tour.guide import TourGuide


class TourBox(Widget, can_focus=True):
    """Takes the keyboard while the tour goes on; a click brings it back."""

    DEFAULT_CSS = """
    TourBox {
        height: auto;
        min-height: 6;
        padding: 0 1;
        border: round $accent 50%;
        border-title-color: $text-accent;
        border-title-style: bold;
        border-subtitle-color: $foreground 60%;
        background: $surface;
        &:focus { border: round $accent; }
    }
    """
    KEYS = (
        KeyAction("tour.next", "enter", "go(1)", "next step", "", ""),
        KeyAction("tour.back", "left", "go(-1)", "step before", "", ""),
        KeyAction("tour.leave", "escape", "leave", "leave the tour", "", ""),
    )
    """In the footer while it has the keyboard."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,right", "go(1)", "Next step"),
        Binding("left", "go(-1)", "Step before"),
        Binding("escape", "leave", "Leave the tour"),
    ]

    class Moved(Message):
        """To the next step (1) or the one before (-1)."""

        def __init__(self, steps: int) -> None:
            super().__init__()
            self.steps = steps

    class Left(Message):
        """The tour is to end."""

    def __init__(self, guide: "TourGuide") -> None:
        super().__init__()
        self._guide = guide
        self._drawn: object = None

    def on_mount(self) -> None:
        """Begin where the tour stands, with the keyboard."""
        self.refresh_view()
        self.call_after_refresh(self.focus)  # after whatever the screen itself begins with

    def refresh_view(self) -> None:
        """Take over what changed in the tour."""
        guide = self._guide
        state = (guide.position, guide.state_text)
        if state != self._drawn:
            self._drawn = state
            self.border_title = self._shown(f"Tour {guide.position + 1}/{len(guide.steps)} · {guide.step.title}")
            self.border_subtitle = self._shown(f"Enter {'ends' if guide.is_last else 'next'} · ← back · Esc leaves")
            self.refresh(layout=True)

    def _shown(self, text: str) -> Content:
        content = Content(text)
        return content_to_ascii(content) if getattr(self.app, "ascii", False) else content

    def render(self) -> Content:
        """What will happen, and what has."""
        guide = self._guide
        found = bool(guide.found[guide.position])
        style = "bold $text-success" if found else "$text-warning"
        return Content.assemble((with_keys(guide.step.text), MUTED), "\n", (drawable(guide.state_text), style))

    def on_click(self, event: events.Click) -> None:
        """The keyboard is the tour's again."""
        self.focus()

    def action_go(self, steps: int) -> None:
        """Another step."""
        self.post_message(self.Moved(steps))

    def action_leave(self) -> None:
        """Enough."""
        self.post_message(self.Left())

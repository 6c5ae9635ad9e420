"""A banner under the header while the engine is not simply running."""

from textual.content import Content
from textual.widget import Widget

from pagedchat.tui.chat.engine_status import Status


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

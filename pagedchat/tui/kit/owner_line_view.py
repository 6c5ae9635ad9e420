"""Lines whose pieces have the colours of sequences, for panels that name them."""

from collections.abc import Iterable
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.strip import Strip

from pagedchat.tui.kit.line_view import LineView
from pagedchat.tui.kit.owner_colors import owner_color, owner_colors


class OwnerLineView(LineView):
    """Draws pieces: texts, each with the name of a component style, with nothing, or with `@` and an owner's
    number."""

    COMPONENT_PREFIX: ClassVar[str]
    """Of the component classes that pieces name: `PREFIX--dim`."""

    def __init__(self) -> None:
        super().__init__()
        self._colors: list[Color] = []

    def strip_of(self, pieces: Iterable[tuple[str, str]]) -> Strip:
        """A line of them."""
        return Strip([Segment(text, self._style(name)) for text, name in pieces])

    def _style(self, name: str) -> Style | None:
        if not name:
            return None
        if name[0] != "@":
            return self.style_of(f"{self.COMPONENT_PREFIX}--{name}")
        if not self._colors:
            self._colors = owner_colors(self.app.current_theme)
        return Style.from_color(owner_color(self._colors, int(name[1:])).rich_color)

    def notify_style_update(self) -> None:
        """Another theme: other colours."""
        super().notify_style_update()
        self._colors = []

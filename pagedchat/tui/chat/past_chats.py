"""The chats as they were at the step shown: what each sequence held, all of them in one column."""

from textual.content import Content
from textual.widget import Widget

from pagedchat.engine.mirror import CacheMirror
from pagedchat.tui.kit.owner_colors import owner_color, owner_colors
from pagedchat.view.engine_view import EngineView
from pagedchat.view.owners import owner_number
from pagedchat.view.past.chat_texts import PastChat, PastRow, past_rows, past_text
from pagedchat.view.sentences.words import count


class PastChats(Widget):
    """Drawn anew only when another moment is shown."""

    DEFAULT_CSS = """
    PastChats {
        width: 1fr; height: 1fr;
        padding: 0 1;
        border: round $foreground 25%;
        border-title-color: $text-muted;
        &.-ascii { border: ascii $foreground 25%; }
    }
    """

    def __init__(self, view: EngineView, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = view
        self.border_title = "Chats"
        self._drawn: tuple[CacheMirror | None, int] = (None, 0)

    def on_mount(self) -> None:
        """The frame's characters are those that the program may draw."""
        self.set_class(bool(getattr(self.app, "ascii", False)), "-ascii")

    def refresh_view(self) -> None:
        """Follow the moment shown."""
        if self._moment() != self._drawn:
            self.refresh()

    def render(self) -> Content:
        """Every chat's title and the end of its text."""
        self._drawn = self._moment()
        rows = past_rows(self._chats(), *self.content_size)
        return Content("\n").join([self._styled(row) for row in rows])

    def _moment(self) -> tuple[CacheMirror | None, int]:
        mirror = self.view.mirror
        return mirror, mirror.num_reports if mirror is not None else 0

    def _chats(self) -> list[PastChat]:
        mirror = self.view.mirror
        if mirror is None:
            return []
        return [
            PastChat(seq_id, self._title(seq_id, mirror), past_text(self.view, seq_id) or "")
            for seq_id in sorted(mirror.sequences)
        ]

    def _title(self, seq_id: int, mirror: CacheMirror) -> str:
        sequence = mirror.sequences[seq_id]
        num_blocks = len(sequence.block_table)
        tokens = count(len(sequence.token_ids), "token")
        return f"{self.view.name(seq_id)}  {sequence.status}  {tokens}  {count(num_blocks, 'block')}"

    def _styled(self, row: PastRow) -> Content:
        content = Content(row.text).truncate(self.content_size.width, ellipsis=True)
        if row.title_of is None:
            return content
        number = owner_number(row.title_of, self.view.name(row.title_of))
        color = owner_color(owner_colors(self.app.current_theme), number)
        return content.stylize(f"bold {color.hex}")

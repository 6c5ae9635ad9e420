"""One block looked at closely: its state, owners, tokens and what happened to it."""

from pathlib import PurePath
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Static

from pagedchat.tui.inspector.goto import Destination, GotoScreen
from pagedchat.view.blocks.facts import block_facts
from pagedchat.view.blocks.neighbours import in_chat, same_owners
from pagedchat.view.blocks.page import page_lines
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.words import to_ascii

REFRESH_SECONDS = 0.2
KEYS = "h l neighbours · j k in chat · s same owners · g goto · b pin · x evict · y copy · Esc back"
PAST = "This is the past: blocks can be pinned and evicted only in the present."


class BlockDetail(ModalScreen[None]):
    """Follows the block while the engine runs, and through time; posts what is asked of the engine."""

    CSS_PATH: ClassVar[str | PurePath | list[str | PurePath] | None] = "block_detail.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "dismiss", "Close"),
        Binding("left,h", "go(-1)", "Block before"),
        Binding("right,l", "go(1)", "Block after"),
        Binding("j", "go_in_chat(1)", "Next in chat"),
        Binding("k", "go_in_chat(-1)", "Before in chat"),
        Binding("s", "go_to_same_owners", "Next of the same owners"),
        Binding("g", "ask_where", "Go to a number"),
        Binding("y", "copy", "Copy as JSON"),
        Binding("b", "toggle_pin", "Pin or unpin"),
        Binding("x", "evict", "Evict"),
    ]

    class PinToggled(Message):
        """The block shall be kept from eviction, or not any more."""

        def __init__(self, block_id: int, pinned: bool) -> None:
            super().__init__()
            self.block_id = block_id
            self.pinned = pinned
            """What is asked for."""

    class EvictRequested(Message):
        """The cached block shall become free."""

        def __init__(self, block_id: int) -> None:
            super().__init__()
            self.block_id = block_id

    def __init__(self, view: EngineView, block_id: int) -> None:
        super().__init__()
        self.view = view
        self.block_id = block_id
        self._chat: int | None = None
        """The sequence whose table is walked along."""
        self._text = Static("", markup=False)
        self._box = VerticalScroll(self._text)
        self._seen: tuple[int, int, int, int] | None = None
        self._left = False

    # --- showing ------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """One box."""
        yield self._box

    def on_mount(self) -> None:
        """Begin to follow."""
        self.set_class(self._ascii_only, "-ascii")
        self._box.border_subtitle = Content(self._plain(KEYS))
        self._show()
        self.set_interval(REFRESH_SECONDS, self._show)

    def on_resize(self) -> None:
        """Other columns."""
        self.call_after_refresh(self._show)

    def _show(self) -> None:
        mirror = self.view.mirror
        if mirror is None or self.block_id >= mirror.num_blocks:
            self._leave()
            return
        width = self._text.content_size.width or self.size.width
        seen = (id(mirror), mirror.num_reports, self.block_id, width)
        if seen != self._seen:
            self._seen = seen
            facts = block_facts(self.view, mirror, self.block_id)
            self._box.border_title = Content(f"Block {self.block_id:03d} of {mirror.num_blocks:,}")
            self._text.update(Content(self._plain("\n".join(page_lines(facts, width)))))

    def _leave(self) -> None:
        """Close, once, and not what may stand over it."""
        if self.is_active and not self._left:
            self._left = True
            self.dismiss()

    @property
    def _ascii_only(self) -> bool:
        return bool(getattr(self.app, "ascii", False))

    def _plain(self, text: str) -> str:
        return to_ascii(text) if self._ascii_only else text

    # --- going to another block ---------------------------------------------------------------------

    def action_go(self, step: int) -> None:
        """The neighbour by id."""
        if self.view.mirror is not None:
            self._go_to(min(max(0, self.block_id + step), self.view.mirror.num_blocks - 1))

    def action_go_in_chat(self, steps: int) -> None:
        """The neighbour in a chat's block table."""
        if self.view.mirror is not None:
            found = in_chat(self.view.mirror, self.block_id, steps, self._chat)
            if found is None:
                self.notify("The block table ends here, or nobody has the block.")
            else:
                block_id, self._chat = found
                self._go_to(block_id)

    def action_go_to_same_owners(self) -> None:
        """The next block that the same chats hold."""
        if self.view.mirror is not None:
            found = same_owners(self.view.mirror, self.block_id)
            if found is None:
                self.notify("No other block has these owners.")
            else:
                self._go_to(found)

    def action_ask_where(self) -> None:
        """Ask for a number."""
        if self.view.mirror is not None:
            self.app.push_screen(GotoScreen(self.view.mirror.num_blocks), self._go_where)

    def _go_where(self, destination: Destination | None) -> None:
        if destination is not None and destination.block_id is not None:
            self._go_to(destination.block_id)
        elif destination is not None:
            self.notify("Only blocks can be gone to from here.", severity="warning")

    def _go_to(self, block_id: int) -> None:
        self.block_id = block_id
        self._box.scroll_home(animate=False)
        self._show()

    # --- doing something with it --------------------------------------------------------------------

    def action_copy(self) -> None:
        """All that is known, as JSON."""
        if self.view.mirror is not None:
            self.app.copy_to_clipboard(block_facts(self.view, self.view.mirror, self.block_id).as_json())
            self.notify(f"Block {self.block_id:03d} copied as JSON.")

    def action_toggle_pin(self) -> None:
        """Keep it from eviction, or let it go; the engine answers."""
        if self._is_present() and self.view.mirror is not None:
            self.post_message(self.PinToggled(self.block_id, self.block_id not in self.view.mirror.pinned))

    def action_evict(self) -> None:
        """Make it free; the engine answers."""
        if self._is_present():
            self.post_message(self.EvictRequested(self.block_id))

    def _is_present(self) -> bool:
        if self.view.past is not None:
            self.notify(PAST, severity="warning")
        return self.view.past is None

"""What the chats share: how many blocks any two of them have in common, what that saves, the tree of prefixes."""

from collections.abc import Iterator
from time import monotonic

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content

from pagedchat.engine.mirror import CacheMirror
from pagedchat.tui.inspector.sharing.sharing_lines import SharingLines
from pagedchat.tui.messages import BlockOpened, EngineStateChanged
from pagedchat.view.engine_view import EngineView
from pagedchat.view.owners import owner_number
from pagedchat.view.sharing.panel_rows import (
    ASCII,
    UNICODE,
    Chats,
    Pieces,
    Signs,
    advice_rows,
    matrix_rows,
    node_row,
    saving_rows,
    tree_heading,
)
from pagedchat.view.sharing.prefix_tree import PrefixTree, prefix_tree
from pagedchat.view.sharing.savings import find_twins, saving

_BLOCKS_PER_SECOND = 20_000
"""The whole cache is looked at for a picture; a pool of so many blocks gets at most one a second."""


class SharingPanel(Vertical):
    """Stands in the place of the block tables when it is asked for."""

    DEFAULT_CSS = """
    SharingPanel { height: 1fr; }
    """

    def __init__(self, view: EngineView) -> None:
        super().__init__()
        self.view = view
        self.lines = SharingLines()
        self._mirror: CacheMirror | None = None
        self._num_reports = 0
        self._seen: object = None
        self._drawn_at = 0.0
        self._stale = False
        self._highlighted: frozenset[int] = frozenset()
        """What this panel has asked to be marked."""

    def compose(self) -> ComposeResult:
        """Everything scrolls together."""
        yield self.lines

    def on_mount(self) -> None:
        """Say what is seen."""
        self.border_title = Content("Sharing")

    def refresh_view(self) -> None:
        """Follow the engine: look at the cache again if blocks changed hands since the last picture."""
        mirror = self.view.mirror
        if mirror is None or not self.lines.size:
            return
        seen = (dict(self.view.labels), self.lines.scrollable_content_region.width, len(self.view.token_texts))
        other = mirror is not self._mirror or seen != self._seen
        self._stale = self._stale or other or self.view.shown.regrouped_at > self._num_reports
        self._mirror, self._seen, self._num_reports = mirror, seen, mirror.num_reports
        wait = self._drawn_at + mirror.num_blocks / _BLOCKS_PER_SECOND - monotonic()
        if self._stale and (other or wait <= 0):
            self._draw(mirror)
        elif self._stale:
            self.set_timer(wait, self.refresh_view)

    def _draw(self, mirror: CacheMirror) -> None:
        names = {seq_id: self.view.name(seq_id) for seq_id in mirror.sequences}
        order = sorted(names, key=lambda seq_id: (owner_number(seq_id, names[seq_id]), seq_id))
        chats = Chats({seq_id: names[seq_id] for seq_id in order}, self._number)
        signs = ASCII if getattr(self.app, "ascii", False) else UNICODE
        tree = prefix_tree(mirror)
        self.lines.show(list(self._rows(mirror, chats, tree, signs)), tree.nodes)
        self._stale, self._drawn_at = False, monotonic()

    def _rows(self, mirror: CacheMirror, chats: Chats, tree: PrefixTree, signs: Signs) -> Iterator[Pieces]:
        width = self.lines.scrollable_content_region.width
        if chats.names:
            yield from matrix_rows(mirror, chats, width, signs)
        yield from saving_rows(saving(mirror), self.view.shown.info.block_bytes, width, signs)
        yield from advice_rows(find_twins(mirror), chats)
        yield tree_heading(tree)
        for node in tree.nodes:
            yield node_row(node, mirror, self.view.token_texts, chats, width, signs)

    def _number(self, seq_id: int) -> int:
        return owner_number(seq_id, self.view.name(seq_id))

    # --- choosing -----------------------------------------------------------------------------------

    def on_sharing_lines_chosen(self, message: SharingLines.Chosen) -> None:
        """The blocks of the chosen prefix are marked in every panel; another's marks are left alone."""
        message.stop()
        wanted = frozenset(message.node.blocks) if message.node else frozenset()
        if wanted != self._highlighted:
            if wanted or self.view.highlighted == self._highlighted:
                self.view.highlighted = wanted
                self.post_message(EngineStateChanged())
            self._highlighted = wanted

    def on_sharing_lines_opened(self, message: SharingLines.Opened) -> None:
        """Post which block, as any panel does."""
        message.stop()
        self.post_message(BlockOpened(message.node.blocks[0]))

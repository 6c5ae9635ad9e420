"""One block looked at closely: its state, owners, tokens and what happened to it."""

from pathlib import PurePath
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from pagedchat.engine.mirror import CacheMirror
from pagedchat.tui.block_history import block_history
from pagedchat.tui.engine_view import EngineView
from pagedchat.units import format_size

HISTORY = 12
"""Moments shown at most."""
REFRESH_SECONDS = 0.2
_STATES = {"free": "free", "cached": "cached (ref 0, findable)", "in_use": "in use"}


class BlockDetail(ModalScreen[None]):
    """Follows the block while the engine runs; left and right go to its neighbours."""

    CSS_PATH: ClassVar[str | PurePath | list[str | PurePath] | None] = "block_detail.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "dismiss", "Close"),
        Binding("left,h", "go(-1)", "Block before"),
        Binding("right,l", "go(1)", "Block after"),
    ]

    def __init__(self, view: EngineView, block_id: int) -> None:
        super().__init__()
        self.view = view
        self.block_id = block_id
        self._text = Static("", markup=False)
        self._seen: object = None

    def compose(self) -> ComposeResult:
        """One box."""
        with VerticalScroll() as box:
            box.border_subtitle = Content("← → neighbours · Esc closes")
            yield self._text

    def on_mount(self) -> None:
        """Begin to follow."""
        self._show()
        self.set_interval(REFRESH_SECONDS, self._show)

    def action_go(self, step: int) -> None:
        """The neighbour by id."""
        if self.view.mirror is not None:
            self.block_id = min(max(0, self.block_id + step), self.view.mirror.num_blocks - 1)
            self._show()

    def _show(self) -> None:
        mirror = self.view.mirror
        seen = (mirror, mirror.num_reports if mirror else 0, self.block_id)
        if seen == self._seen:
            return
        self._seen = seen
        if mirror is None or self.block_id >= mirror.num_blocks:
            self.dismiss()
            return
        self.query_one(VerticalScroll).border_title = Content(f"Block {self.block_id:03d}")
        self._text.update(Content("\n".join(detail_lines(self.view, mirror, self.block_id))))


def detail_lines(view: EngineView, mirror: CacheMirror, block_id: int) -> list[str]:
    """All that is known of a block, a fact a line."""
    block_hash = mirror.block_hashes[block_id]
    size = f" · {format_size(view.info.block_bytes)}" if view.info else ""
    lines = [
        f"state    {_STATES[mirror.state(block_id)]} · ref count {mirror.ref_counts[block_id]}",
        f"fill     {mirror.fill(block_id)} of {mirror.block_size} slots{size}",
        f"hash     {block_hash.hex() if block_hash else 'none until it is full and findable'}",
    ]
    lines += _labelled("owners", _owner_lines(view, mirror, block_id) or ["nobody"])
    lines += _labelled("tokens", _token_lines(mirror, block_id))
    history = block_history(block_id, mirror, reversed(view.history), view.name, HISTORY)
    lines += _labelled("history", [f"{moment.step:>6}  {moment.text}" for moment in history] or ["nothing yet"])
    return lines


def _labelled(label: str, lines: list[str]) -> list[str]:
    return [f"{label if index == 0 else '':<9}{line}" for index, line in enumerate(lines)]


def _owner_lines(view: EngineView, mirror: CacheMirror, block_id: int) -> list[str]:
    lines = []
    for seq_id in mirror.holders[block_id]:
        index = mirror.sequences[seq_id].block_table.index(block_id)
        first = index * mirror.block_size
        lines.append(f"{view.name(seq_id)} · entry {index} · tokens {first} to {first + mirror.block_size - 1}")
    return lines


def _token_lines(mirror: CacheMirror, block_id: int) -> list[str]:
    """The ids in the slots, as far as an owner tells them, eight a line; `·` is an empty slot."""
    holders = mirror.holders[block_id]
    if not holders:
        return ["known to its owners only, and it has none"]
    owner = max((mirror.sequences[seq_id] for seq_id in holders), key=lambda sequence: sequence.num_computed)
    first = owner.block_table.index(block_id) * mirror.block_size
    tokens = owner.token_ids[first : min(first + mirror.block_size, owner.num_computed)]
    slots = [str(token) for token in tokens] + ["·"] * (mirror.block_size - len(tokens))
    width = max(map(len, slots))
    return [" ".join(slot.rjust(width) for slot in slots[i : i + 8]) for i in range(0, len(slots), 8)]

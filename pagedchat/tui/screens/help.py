"""One page of help: the keys, the signs, and what a block, a fork and a copy are."""

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from pagedchat.tui.actions import APP_ACTIONS, CHAT_ACTIONS, COMPOSER_ACTIONS, PALETTE, KeyAction, key_display
from pagedchat.tui.lines import MUTED

_KEY = "bold $text-primary"
_HEAD = "bold $text-accent"

_KEY_CELLS = 16

_MORE_KEYS = (
    ("↑ ↓", "Earlier prompts, queued ones first"),
    ("PgUp PgDn End", "Scroll the chat; to its newest text"),
    ("Alt+1 … Alt+9", "To the chat of this number"),
    ("drag, ^C", "Select text in a chat and copy it"),
)

_SIGNS = (
    ("○ ◌ ●", "idle, waiting for the engine, writing"),
    ("■ ✕", "stopped by you, or by a dead engine"),
    ("▶ ‖", "the scheduler runs, is paused"),
    ("⑂", "a fork, and what it still shares"),
    ("ctx 395/2048", "tokens held, of those that fit"),
    ("25 blk, 24 shr", "blocks of a chat, of them shared"),
)

_WORDS = (
    (
        "Block",
        "The KV cache is cut into blocks of a fixed number of token slots; a chat's block table lists its own.",
    ),
    ("Fork", "A fork lists the same blocks as its source: every ref count goes up by one, nothing is copied."),
    ("Copy-on-write", "The first to write into a shared block gets a copy of that one block."),
    (
        "Prefix cache",
        "Full blocks stay findable by the hash of their tokens; a prompt that begins alike takes them.",
    ),
    ("Preemption", "When blocks run out, a chat gives its own back and recomputes them or swaps them in later."),
)


class HelpScreen(ModalScreen[None]):
    """Closes with Esc, F1 or q."""

    CSS_PATH = "help.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,q", "dismiss", "close"),
    ]

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012 - Textual's own form

    def compose(self) -> ComposeResult:
        """Keys on the left, signs and words on the right."""
        with VerticalScroll() as panel:
            panel.border_title = "Help"
            panel.border_subtitle = "Esc closes"
            with Container(id="columns"):
                yield Static(keys_text(), id="keys")
                yield Static(signs_text(), id="signs")


def keys_text() -> Content:
    """Every key and what it does."""
    actions = (*COMPOSER_ACTIONS, *CHAT_ACTIONS, *APP_ACTIONS, PALETTE)
    rows = [(_all_keys(action), action.help) for action in actions]
    return _table("Keys", [*rows, *_MORE_KEYS], _KEY_CELLS)


def signs_text() -> Content:
    """The signs, then the words."""
    words: list[Content] = []
    for word, meaning in _WORDS:
        words.append(Content.assemble((word, "bold"), "  ", (meaning, MUTED)))
    return Content("\n").join([
        _table("Signs", _SIGNS, _KEY_CELLS),
        Content.styled("\nWords", _HEAD),
        *words,
        Content.styled("\nThe inspector (F3) shows every block, table, batch and event.", MUTED),
    ])  # fmt: skip


def _all_keys(action: KeyAction) -> str:
    first, *others = action.keys.split(",")
    return key_display(first) + (", Alt+Enter" if "alt+enter" in others else "")


def _table(title: str, rows: Iterable[tuple[str, str]], width: int) -> Content:
    lines = [Content.styled(title, _HEAD)]
    lines += [Content.assemble((keys.ljust(width), _KEY), (meaning, MUTED)) for keys, meaning in rows]
    return Content("\n").join(lines)

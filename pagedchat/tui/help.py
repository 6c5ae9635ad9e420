"""One page of help: the keys of every part, the slash commands, the signs, and five words about blocks."""

from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widget import Widget

from pagedchat.tui.actions import (
    APP_ACTIONS,
    CHAT_ACTIONS,
    COMPOSER_ACTIONS,
    PALETTE,
    KeyAction,
    key_display,
    remapped,
)
from pagedchat.tui.commands.registry import GROUPS
from pagedchat.tui.inspector.inspector_keys import INSPECTOR_ACTIONS
from pagedchat.tui.kit.lines import MUTED

_KEY = "bold $text-primary"
_HEAD = "bold $text-accent"
_KEY_CELLS = 16
_USAGE_CELLS = 23


class Section(NamedTuple):
    """A heading, and under it rows of two columns, the first `cells` wide."""

    title: str
    rows: Sequence[tuple[str, str]]
    cells: int = _KEY_CELLS


_MORE_KEYS = (
    ("↑ ↓", "Earlier prompts, queued ones first"),
    ("@name", "In a prompt: a file's text, Tab finds it"),
    ("PgUp PgDn End", "Scroll the chat; to its newest text"),
    ("Alt+1 … Alt+9", "To the chat of this number"),
    ("drag, ^C", "Select text in a chat and copy it"),
    ("^Z ^Y", "Undo and redo: a paste, an emptied prompt"),
    ("Esc, F2", "From a panel beside the chats: back to the chat"),
    ("Alt+C …", "A panel's key beside the chats; letters are typed"),
    ("Alt+P, click", "On a coloured token: its alternatives; Enter forks with one"),
    ("click on ►", "Open what a model thought before it answered"),
    ("Alt+Enter, ^B", "In the list of models (^L): open it beside this one"),
    ("^R ^D ^Z", "In the history (^S): rename, delete, undo"),
)

_SIGNS = (
    ("○ ◦ ●", "idle, waiting (the pane says for what), writing"),
    ("■ □", "stopped by you, or by a dead engine"),
    ("► ║ ◄", "the scheduler runs, is paused; you look at the past"),
    ("√ ‼", "the engine's books agree; they do not, do not trust it"),
    ("► ▼", "a thought, folded or whole"),
    (r"\x1b \u202e", "what a reply has of escapes and hidden signs, spelled out"),
    ("»", "a fork, and what it still shares"),
    ("ctx 395/2048", "tokens held, of those that fit"),
    ("394 in 25 blk", "tokens computed, and their blocks; shr: shared"),
    ("9 kept, 8 found", "prompt tokens a chat had still; in the cache"),
    ("023² 041*", "a block two chats hold; one just copied"),
    ("all ░1▓░", "under the map: the whole pool in a line; » rows left out"),
    ("░ ▼ next out", "a free block; one of those that are taken next"),
    ("P p • r", "timeline: prefill and its tail, decode, recompute"),
    ("f w s ▼", "timeline: forked, waiting, swapped out, preempted"),
)

_WORDS = (
    (
        "Block",
        "The KV cache is cut into blocks of a fixed number of token slots; a chat's block table lists its own.",
    ),
    ("Fork", "A fork lists the same blocks as its source: every ref count goes up by one, nothing is copied."),
    (
        "Copy-on-write",
        "Who writes into a block that others hold, or can find by its hash, gets a copy of that one block.",
    ),
    (
        "Prefix cache",
        "Full blocks stay findable by the hash of their tokens; a prompt that begins alike takes them.",
    ),
    (
        "Preemption",
        "When blocks run out, chats, at rest or not, give theirs back; later they find, recompute or swap them in.",
    ),
)


class HelpText(Widget):
    """Sections below one another; the second column is wrapped within itself."""

    DEFAULT_CSS = """
    HelpText { height: auto; }
    """

    def __init__(self, sections: Sequence[Section], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._sections = sections

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as the wrapped text has."""
        return len(help_lines(self._sections, width))

    def render(self) -> Content:
        """All of it."""
        return Content("\n").join(help_lines(self._sections, self.content_size.width))


class HelpScreen(ModalScreen[None]):
    """Closes with Esc, F1 or q."""

    CSS_PATH = "help.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "close"),
        Binding("f1", "dismiss", "close", id="app.help"),  # the key that opened it, whatever it is
    ]

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012 - Textual's own form

    def compose(self) -> ComposeResult:
        """What the chats need on the left, the commands and the inspector on the right."""
        with VerticalScroll() as panel:
            panel.border_title = "Help"
            panel.border_subtitle = "/tour shows it all on this engine · ↑ ↓ scroll · Esc closes"
            with Container(id="columns"):
                keys = getattr(self.app, "keys", {})
                yield HelpText([words(), signs(), chat_keys(keys)], id="left")
                yield HelpText([*commands(), inspector_keys(keys)], id="right")


def words() -> Section:
    """What a block, a fork and a copy are."""
    return Section("Words", _WORDS)


def signs() -> Section:
    """The signs of all screens."""
    return Section("Signs", _SIGNS)


def chat_keys(keymap: Mapping[str, str]) -> Section:
    """Every key of the chats, as the user has them, and what it does."""
    actions = (*COMPOSER_ACTIONS, *CHAT_ACTIONS, *APP_ACTIONS, PALETTE)
    return Section("Keys", [*_rows(actions, keymap), *_MORE_KEYS])


def inspector_keys(keymap: Mapping[str, str]) -> Section:
    """Every key of the inspector."""
    opens = next(remapped(action, keymap) for action in APP_ACTIONS if action.id == "app.inspector")
    return Section(f"Keys of the inspector ({opens.key_display})", _rows(INSPECTOR_ACTIONS, keymap))


def commands() -> list[Section]:
    """Every slash command, by what it is about."""
    return [
        Section(f"Commands: {group.lower()}", [(command.usage, command.help) for command in found], _USAGE_CELLS)
        for group, found in GROUPS.items()
    ]


def help_lines(sections: Sequence[Section], width: int) -> list[Content]:
    """The sections in a column of so many cells."""
    lines: list[Content] = []
    for section in sections:
        lines += [Content("")] if lines else []
        lines.append(Content.styled(section.title, _HEAD))
        for key, meaning in section.rows:
            lines += _row_lines(key, meaning, section.cells, width)
    return lines


def _row_lines(key: str, meaning: str, cells: int, width: int) -> list[Content]:
    """A key that is longer than its column has the first line for itself."""
    wrapped = wrap(meaning, max(10, width - cells - 1)) or [""]
    if len(key) >= cells:
        return [Content.styled(key, _KEY), *_row_lines("", meaning, cells, width)]
    return [
        Content.assemble((f"{key if index == 0 else '':<{cells - 1}} ", _KEY), (line, MUTED))
        for index, line in enumerate(wrapped)
    ]


def _rows(actions: Iterable[KeyAction], keymap: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(_all_keys(remapped(action, keymap)), action.help) for action in actions]


def _all_keys(action: KeyAction) -> str:
    first, *others = action.keys.split(",")
    return key_display(first) + (", Alt+Enter" if "alt+enter" in others else "")

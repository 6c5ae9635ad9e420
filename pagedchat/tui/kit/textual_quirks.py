"""Four things that Textual does otherwise than is wanted here: how it reads some keys, how it starts work, that it
never forgets who listened, and that what is being removed is still there for a while."""

from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget
from textual.worker import Worker


def teach_terminal_keys(more: Mapping[str, str] = MappingProxyType({})) -> None:
    """Teach the key parser what plain terminals send for Alt+Enter and Alt with digits and letters that mean
    something in a chat; again changes nothing.

    `more` is taught, too: a character after Esc -> what Textual calls the key.

    Terminals with the kitty keyboard protocol report these keys by name. All others send Esc and the character,
    which Textual 8.2 reads as what a Mac keyboard writes with Option (`¡` for 1) and as a mere Enter; then Alt+1
    would write into the prompt, and Alt+Enter would send it.
    """
    table: dict[str, Any] = ANSI_SEQUENCES_KEYS  # type: ignore[assignment]
    names = {"\r": "alt+enter", "\n": "alt+enter"} | {key: f"alt+{key}" for key in "123456789acmrtv"}
    for character, name in (*names.items(), *more.items()):
        table[f"\x1b{character}"] = (SimpleNamespace(value=name),)


def start_work(
    node: DOMNode,
    work: Callable[[], Coroutine[Any, Any, None]],
    group: str,
    *,
    exit_on_error: bool = True,
    exclusive: bool = False,
) -> Worker[None]:
    """Run `work` beside the screen until it ends, or `node` goes, or the program is left.

    It takes the function and not its coroutine: a worker can be cancelled before its first turn, and Python warns
    about a coroutine that nobody ever awaited, whenever it finds it.

    Args:
        node: what the work belongs to.
        work: an async function without arguments.
        group: whose work it is, for Textual's log.
        exit_on_error: whether an exception in it ends the program.
        exclusive: whether earlier work of this group is dropped.
    """
    return node.run_worker(work, name=group, group=group, exit_on_error=exit_on_error, exclusive=exclusive)


def stays(widget: Widget) -> bool:
    """Whether it is on a screen, and is not being removed: then what is inside goes first, and cannot be drawn."""
    return widget.is_attached and not (widget._pruning or widget._closing)


def forget_listener(node: DOMNode, screen: Screen[Any]) -> None:
    """Let the program and a screen forget a text area that has gone.

    Both would keep it, with its text and all lines that were drawn of it, until the program ends: who watched the
    theme is passed over but not taken off the list, and a signal's weak key is held by its own callback.

    Args:
        node: the text area.
        screen: where it was.
    """
    screen.text_selection_started_signal.unsubscribe(node)
    watched: dict[str, list[tuple[Any, Any]]] = getattr(screen.app, "__watchers", {})
    for watchers in watched.values():
        watchers[:] = [watcher for watcher in watchers if watcher[0] is not node]

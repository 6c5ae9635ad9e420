"""Keys in the order of typing: those behind one that may move the keyboard wait until that one was heard.

Textual gives a key to the widget that has the keyboard at that moment. What the key does is often done later, on
its way up from there; letters typed meanwhile would go to the chat that is being left. Knows no chat.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from textual import events
from textual.app import App
from textual.message_pump import MessagePump
from textual.timer import Timer

_ROUNDS = 3
"""A key becomes a message of the widget, and that one of its parent's: each goes the same way up."""
_PATIENCE = 0.5
"""Seconds after which keys go on in any case: a widget that is taken away meanwhile hears of nothing."""


def may_move(event: events.Event) -> bool:
    """Whether this is more than a letter for whoever has the keyboard."""
    return isinstance(event, events.Key) and (not event.is_printable or event.key.startswith("alt+"))


class KeysInTurn:
    """Knows whether a key is under way.

    Args:
        app: whose keys they are.
        goes_on: called when the next key can be given to a widget.
    """

    def __init__(self, app: App[None], goes_on: Callable[[], Awaitable[None]]) -> None:
        self._app = app
        self._goes_on = goes_on
        self._number = 0
        self._timer: Timer | None = None

    @property
    def under_way(self) -> bool:
        """Whether one that may move the keyboard was not heard everywhere yet."""
        return self._timer is not None

    def follow(self, start: MessagePump) -> None:
        """Go behind a key on its way from `start` up to the app, through the same queues."""
        self._number += 1
        self._timer = self._app.set_timer(_PATIENCE, partial(self._arrive, self._number))
        above = getattr(start, "ancestors", [])
        self._send(self._number, [start, *above] * _ROUNDS)

    def _send(self, number: int, way: Sequence[MessagePump]) -> None:
        """On to the next that is still there."""
        for index, node in enumerate(way):
            if node.call_later(self._send, number, way[index + 1 :]):
                return
        self._app.call_later(self._arrive, number)  # behind what the app was asked for on the way

    async def _arrive(self, number: int) -> None:
        if number == self._number and self._timer is not None:
            self._timer.stop()
            self._timer = None
            await self._goes_on()

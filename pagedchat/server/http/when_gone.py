"""Who wants to hear that a client has gone, of one connection. Knows no HTTP."""

from collections.abc import Callable

WHEN_GONE = "pagedchat.when_gone"
"""Among the extensions of an ASGI scope: a `WhenGone`."""


class WhenGone:
    """The listeners of one connection; they hear it once, those that come too late at once."""

    __slots__ = ("_has_gone", "_listeners")

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []
        self._has_gone = False

    def add(self, listener: Callable[[], None]) -> None:
        """Tell this one, too."""
        if self._has_gone:
            listener()
        else:
            self._listeners.append(listener)

    def discard(self, listener: Callable[[], None]) -> None:
        """This one no more."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def tell(self) -> None:
        """The client has gone."""
        self._has_gone = True
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()

"""How long chats wait from one token to the next. Knows no engine."""

from collections.abc import Hashable

NUM_WORST = 2


class Gaps:
    """Of several replies at a time."""

    def __init__(self) -> None:
        self._last: dict[Hashable, float] = {}
        self.num_tokens = 0
        self.worst: list[float] = []
        """Seconds, the longest ones first, at most `NUM_WORST`."""

    def begin(self, chat: Hashable) -> None:
        """A reply is asked for: what comes before its first token is no gap."""
        self._last.pop(chat, None)

    def token(self, chat: Hashable, now: float) -> None:
        """A token of it is there.

        Args:
            chat: whose.
            now: seconds.
        """
        self.num_tokens += 1
        last = self._last.get(chat)
        self._last[chat] = now
        if last is not None and (len(self.worst) < NUM_WORST or now - last > self.worst[-1]):
            self.worst = sorted([*self.worst, now - last], reverse=True)[:NUM_WORST]

"""How long chats wait from one token to the next, and what was noted meanwhile. Knows no engine."""

from collections.abc import Hashable, Iterable

NUM_WORST = 2


class Gaps:
    """Of several replies at a time."""

    def __init__(self) -> None:
        self._last: dict[Hashable, float] = {}
        self.num_tokens = 0
        self._worst: list[tuple[float, float]] = []
        """Seconds, and when they were over; the longest ones first, at most `NUM_WORST`."""

    @property
    def worst(self) -> list[float]:
        """Seconds, the longest ones first, at most `NUM_WORST`."""
        return [seconds for seconds, _ in self._worst]

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
        if last is not None and (len(self._worst) < NUM_WORST or now - last > self._worst[-1][0]):
            self._worst = sorted([*self._worst, (now - last, now)], reverse=True)[:NUM_WORST]

    def meanwhile(self, notes: Iterable[tuple[float, str]]) -> list[list[str]]:
        """What was noted in each of the longest gaps.

        Args:
            notes: when, in the same seconds, and what.
        """
        kept = [*notes]
        return [[what for when, what in kept if end - seconds < when <= end] for seconds, end in self._worst]

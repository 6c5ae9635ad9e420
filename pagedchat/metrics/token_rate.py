"""Tokens a second over the last moments of the engine's own clock, at the same small cost for every step."""

from collections import deque

WINDOW = 2.0
"""Seconds of report time that the rate is taken over."""
_PIECE = 0.1
"""Seconds whose tokens are kept as one number."""


class TokenRate:
    """Counts the tokens of the steps that ended within `WINDOW` seconds of the last one."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[float, int]] = deque()
        """When each began, and its tokens; oldest first."""
        self._num_tokens = 0
        self._last = 0.0

    def add(self, started: float, ended: float, num_tokens: int) -> None:
        """A step, in seconds of report time."""
        if self._pieces and started - self._pieces[-1][0] < _PIECE:
            began, before = self._pieces.pop()
            self._pieces.append((began, before + num_tokens))
        else:
            self._pieces.append((started, num_tokens))
        self._num_tokens += num_tokens
        self._last = ended
        while self._pieces[0][0] < ended - WINDOW and len(self._pieces) > 1:
            self._num_tokens -= self._pieces.popleft()[1]

    def rate(self) -> float:
        """Tokens a second; 0 before the first step."""
        return self._num_tokens / max(self._last - self._pieces[0][0], 1e-6) if self._pieces else 0.0

"""What is known of a server that answers in place of an engine: the requests of these chats, and its own figures.

It tells no blocks and no steps, so nothing here is a cache. Speeds are by the clock on this side: what came, when.
"""

from collections import deque
from collections.abc import Callable

from pagedchat.events import (
    EngineEvent,
    EngineReady,
    RequestFailed,
    RequestFinished,
    ServerFigures,
    ServerInfo,
    TextDelta,
)

WINDOW = 2.0
"""Seconds that a speed is taken over."""
_FIGURES_KEPT = 60
_MOST_PIECES = 2000
"""Of one chat's reply, within the window."""


class ServerState:
    """One server since it answered.

    Args:
        info: what was found out when it did.
        server: of that, who it is.
        clock: seconds.
    """

    def __init__(self, info: EngineReady, server: ServerInfo, clock: Callable[[], float]) -> None:
        self.info = info
        self.server = server
        self._clock = clock
        self.figures: ServerFigures | None = None
        """What its `/metrics` told last, or why they did not; None until they were asked."""
        self._told: deque[tuple[float, ServerFigures]] = deque(maxlen=_FIGURES_KEPT)
        self._pieces: dict[int, deque[tuple[float, int]]] = {}
        """Of each chat with a running request: when how many tokens had come."""
        self.num_replies = self.num_tokens = self.num_prompt_tokens = self.num_cached_tokens = 0
        """Of these chats: replies that ended, what was generated, what was sent, and what of that it had cached."""
        self.num_failed = 0

    def apply(self, event: EngineEvent) -> None:
        """Fold one event; all others change nothing."""
        match event:
            case TextDelta(session_id=session_id):
                pieces = self._pieces.setdefault(session_id, deque(maxlen=_MOST_PIECES))
                pieces.append((self._clock(), event.num_tokens))
            case RequestFinished():
                self._pieces.pop(event.session_id, None)
                self.num_replies += event.num_tokens > 0
                self.num_tokens += event.num_tokens
                self.num_prompt_tokens += event.num_prompt_tokens
                self.num_cached_tokens += event.num_cached_tokens
            case RequestFailed():
                self._pieces.pop(event.session_id, None)
                self.num_failed += 1
            case ServerFigures():
                self.figures = event
                self._told.append((self._clock(), event))

    # --- speeds -------------------------------------------------------------------------------------

    def sequence_rate(self, session_id: int) -> float:
        """Tokens a second of one chat's running reply; 0 where none comes."""
        pieces, now = self._pieces.get(session_id), self._clock()
        if not pieces:
            return 0.0
        while len(pieces) > 2 and pieces[1][0] < now - WINDOW:
            pieces.popleft()
        (since, before), (_, tokens) = pieces[0], pieces[-1]
        return max(0, tokens - before) / (now - since) if now > since else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Of these chats together."""
        return sum(map(self.sequence_rate, self._pieces))

    @property
    def of_everybody(self) -> float | None:
        """Tokens a second of all its users, by its own count; None where it does not tell."""
        told = [(time, figures.generated_tokens) for time, figures in self._told if figures.generated_tokens]
        if self.figures is not None and self.figures.tokens_per_second is not None:
            return self.figures.tokens_per_second
        if len(told) < 2:
            return None
        (since, before), (until, after) = told[-2], told[-1]
        return max(0.0, (after or 0.0) - (before or 0.0)) / (until - since) if until > since else None

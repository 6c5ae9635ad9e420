"""How often the outside hears of the engine: what is urgent at once, the rest at the rate at which screens draw.

Order is kept: before an urgent event goes all that came before it.
"""

import time
from collections.abc import Callable

from pagedchat.events import EngineEvent, LoadProgress, StepReport, Steps, TextDelta, TokenTexts

INTERVAL = 1 / 20
"""Seconds between two publications: the screens draw no more rounds than that (`tui/kit/draw_turns.py`)."""
_PIECE = 1024
"""Parts of steps that are worth an event of their own: some 50 us of writing it down."""


class Publisher:
    """Collects and sends events.

    Args:
        send: called with every event that goes out; it may keep it until the next `push`.
        clock: seconds.
        push: called when nothing more goes out for now, with whether there is time to wait until it is gone.
        tells_steps: whether reports go out at all, and what their tokens stand for.
    """

    def __init__(
        self,
        send: Callable[[EngineEvent], None],
        clock: Callable[[], float] = time.monotonic,
        push: Callable[[bool], None] = lambda _wait: None,
        *,
        tells_steps: bool = True,
    ) -> None:
        self._send = send
        self._clock = clock
        self._push = push
        self._tells_steps = tells_steps
        self._last_sent = float("-inf")
        self._reports: list[StepReport] = []
        self._num_parts = 0
        """Of all these, about."""
        self._texts: dict[int, TextDelta] = {}
        self._token_texts: list[Callable[[], TokenTexts]] = []
        self._stage = ""

    def send_now(self, event: EngineEvent) -> None:
        """An urgent event."""
        self._send_collected()
        self._send(event)
        self._push(False)

    def send_beside(self, event: EngineEvent) -> None:
        """Something urgent that is about no step and no session: what was collected need not go before it."""
        self._send(event)
        self._push(False)

    def add_report(self, report: StepReport) -> None:
        """A step was run, or verbs."""
        if self._tells_steps:
            self._reports.append(report)
            self._num_parts += 1 + report.queues.running + len(report.events)

    def add_token_texts(self, texts: Callable[[], TokenTexts]) -> None:
        """What tokens stand for that occur in the reports added last; asked for when it is sent."""
        if self._tells_steps:
            self._token_texts.append(texts)

    def add_text(self, delta: TextDelta) -> None:
        """A request has more text."""
        before = self._texts.get(delta.request_id)
        self._texts[delta.request_id] = delta if before is None else before.then(delta)

    def add_progress(self, progress: LoadProgress) -> None:
        """Loading went on; the beginning and the end of a stage are never left out."""
        ended = progress.total > 0 and progress.done >= progress.total
        if ended or progress.stage != self._stage or self.is_due:
            self._stage = progress.stage
            self._last_sent = self._clock()
            self._send(progress)
            self._push(False)

    def flush(self, wait: bool = False) -> None:
        """Send all that was collected.

        Args:
            wait: until it is gone: there is nothing else to do.
        """
        self._send_collected()
        self._push(wait)

    def write_piece(self) -> None:
        """Steps, where enough have been collected: written down a few at a time, they make no step that follows
        wait. They go out with what is published next."""
        if self._num_parts >= _PIECE:
            self._send_steps()

    def _send_collected(self) -> None:
        self._send_steps()
        texts, self._texts = self._texts, {}
        for delta in texts.values():
            self._send(delta)
        self._last_sent = self._clock()

    def _send_steps(self) -> None:
        reports, self._reports, self._num_parts = self._reports, [], 0
        token_texts, self._token_texts = self._token_texts, []
        if token_texts:
            self._send(_joined([texts() for texts in token_texts]))
        if reports:
            self._send(Steps(reports))

    @property
    def is_due(self) -> bool:
        """Whether the last time was an interval ago."""
        return self._clock() - self._last_sent >= INTERVAL


def _joined(parts: list[TokenTexts]) -> TokenTexts:
    return TokenTexts(
        [token_id for part in parts for token_id in part.token_ids],
        [text for part in parts for text in part.texts],
    )

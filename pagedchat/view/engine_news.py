"""What the engine said that everybody should read, once: answers to commands, and that its books disagree."""

from typing import NamedTuple

from pagedchat.chat.sanitize import sanitize
from pagedchat.events import EngineNotice, IntegrityBroken
from pagedchat.view.engine_view import EngineView


class News(NamedTuple):
    """A text to be shown for a while."""

    text: str
    bad: bool


class EngineNews:
    """Remembers what was told already."""

    def __init__(self, view: EngineView) -> None:
        self._view = view
        self._notice: EngineNotice | None = None
        self._broken: IntegrityBroken | None = None

    def take(self) -> list[News]:
        """What is new since the last call."""
        news: list[News] = []
        notice, broken = self._view.notice, self._view.broken
        if notice is not None and notice is not self._notice:
            news.append(News(sanitize(f"{notice.message} {notice.hint}".strip()), notice.failed))
        if broken is not None and broken is not self._broken:
            news.append(_broken_news(broken))
        self._notice, self._broken = notice, broken
        return news


def _broken_news(broken: IntegrityBroken) -> News:
    where = f" All that is known is in {broken.dump}." if broken.dump else ""
    reason = broken.message.rstrip(".")
    return News(sanitize(f"The engine's books disagree since step {broken.step}: {reason}.{where}"), True)

"""The engine's events folded, and told as Prometheus reads them. Knows no server."""

from threading import Lock

from prometheus_client import CollectorRegistry, generate_latest

from pagedchat.events import EngineEvent
from pagedchat.metrics.collector import MetricsCollector
from pagedchat.metrics.fold import MetricsFold


class Exposition:
    """All metrics of one program. Threads may fold and read side by side."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.figures = MetricsFold()
        """What is told, for the thread that folds."""
        self.registry = CollectorRegistry()
        self.registry.register(MetricsCollector(self.figures, self._lock))

    def fold(self, event: EngineEvent) -> None:
        """Take in the engine's next event."""
        with self._lock:
            self.figures.fold(event)

    def text(self) -> bytes:
        """All of them, as of now, in the text format."""
        return generate_latest(self.registry)

"""Metrics for Prometheus over HTTP, for this machine alone.

The events are folded where they arrive; a thread of its own answers whoever asks, so that neither waits for long.
"""

from contextlib import suppress
from threading import Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import start_http_server

from pagedchat.errors import InvalidValueError, PagedChatError
from pagedchat.events import EngineEvent
from pagedchat.metrics.exposition import Exposition

ADDRESS = "127.0.0.1"
MAX_PORT = 65_535


class MetricsServer:
    """Answers `GET /metrics` from `start` to `close`.

    Args:
        port: where; 0 takes any that is free.

    Raises:
        InvalidValueError: no such port.
    """

    def __init__(self, port: int) -> None:
        if not 0 <= port <= MAX_PORT:
            raise InvalidValueError(f"There is no port {port} for the metrics.", f"Give 0 to {MAX_PORT}.")
        self._asked_port = port
        self._exposition = Exposition()
        self._running: tuple[WSGIServer, Thread] | None = None

    def start(self) -> None:
        """Listen from now on.

        Raises:
            PagedChatError: the port is taken, or not for us.
        """
        try:
            self._running = start_http_server(self._asked_port, ADDRESS, self._exposition.registry)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise PagedChatError(
                f"The metrics cannot be served on port {self._asked_port}: {reason}.",
                "Give another port, or --metrics-port 0 for any that is free.",
            ) from error

    @property
    def port(self) -> int:
        """Where it listens; before `start`, where it is asked to."""
        return self._asked_port if self._running is None else self._running[0].server_port

    @property
    def url(self) -> str:
        """What to give to Prometheus."""
        return f"http://{ADDRESS}:{self.port}/metrics"

    def fold(self, event: EngineEvent) -> None:
        """Take in the engine's next event."""
        self._exposition.fold(event)

    def close(self) -> None:
        """Stop listening; twice does no harm."""
        running, self._running = self._running, None
        if running is not None:
            server, thread = running
            with suppress(OSError):
                server.shutdown()
                server.server_close()
            thread.join(timeout=1.0)

"""A server from its start to its end: it listens, loads the engine, serves, and ends in order when it is asked to.

Knows uvicorn and signals; what is served is in `app.py`.
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn

from pagedchat.config import EngineConfig
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.errors import PagedChatError
from pagedchat.events import EngineDied, EngineEvent, EngineFailed, EngineNotice, EngineReady, IntegrityBroken
from pagedchat.garbage import freeze_once, rare_collections
from pagedchat.metrics.stats_socket import serve_stats
from pagedchat.server.app import build_app
from pagedchat.server.http.protocol import http_protocol
from pagedchat.server.listening import listen, url
from pagedchat.server.opening import OpenedEngine, open_engine
from pagedchat.server.options import ServeOptions
from pagedchat.service.attaching import MAX_TOLD
from pagedchat.service.commands import EngineLink

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SECONDS_TO_CLOSE = 3
"""For connections, once every answer is told."""
_KEEP_ALIVE = 75
"""Seconds; longer than clients keep a connection that they do not use."""

_PING_SECONDS = 10.0
"""After so long without a word a terminal is asked whether it is there; after as long again it is not."""

Say = Callable[[str], None]


class _Uvicorn(uvicorn.Server):
    """Leaves signals to us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Of none."""
        yield


class Server:
    """One run.

    Args:
        config: the model and the engine.
        options: how it is reached.
        overrides: over the model's own wishes.
        listening: told the URL, once requests are served.
        say: told what else is to be known, in sentences.
        loading: hears the engine's events until requests are served.
        link: an engine in the stead of a process of its own.

    Raises:
        PagedChatError: the port cannot be had.
    """

    def __init__(
        self,
        config: EngineConfig,
        options: ServeOptions,
        overrides: SamplingOverrides,
        *,
        listening: Say,
        say: Say,
        loading: Callable[[EngineEvent], None] = lambda _: None,
        link: EngineLink | None = None,
    ) -> None:
        self._config, self._options, self._overrides = config, options, overrides
        self._listening, self._say, self._loading = listening, say, loading
        self._link = link
        self._listener: socket.socket = listen(options.host, options.port)
        self._given_up: PagedChatError | None = None
        self._is_up = False

    async def run(self) -> None:
        """Until somebody asks it to end.

        Raises:
            PagedChatError: the engine cannot start, or has ended for good.
        """
        opened = open_engine(self._config, self._options, self._overrides, self._hear, self._link)
        self._end = asyncio.Event()
        self._admission = opened.served.admission
        server = _Uvicorn(self._uvicorn_config(opened))
        serving = asyncio.create_task(server.serve(sockets=[self._listener]), name="http")
        telling = asyncio.create_task(serve_stats(opened.stats), name="stats")
        try:
            with self._ended_by_signals(), rare_collections():
                await self._until_the_end(opened)
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
            server.should_exit = True
            await serving
            await opened.close()
        if self._given_up is not None:
            raise self._given_up

    async def _until_the_end(self, opened: OpenedEngine) -> None:
        starting = asyncio.create_task(opened.llm.start(), name="engine start")
        ending = asyncio.create_task(self._end.wait(), name="end")
        try:
            await asyncio.wait((starting, ending), return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                return
            starting.result()
            self._is_up = True
            freeze_once()
            opened.stats.url = url(self._listener, tls=bool(self._options.ssl_certfile))
            self._listening(opened.stats.url)
            await ending
        finally:
            starting.cancel()
            ending.cancel()
            await asyncio.gather(starting, ending, return_exceptions=True)
        if self._admission.num_inside and self._given_up is None:
            seconds = self._options.shutdown_seconds
            self._say(f"Ending: running requests have {seconds:g} s; ^C cuts them.")
        await self._admission.close(0 if self._given_up is not None else self._options.shutdown_seconds)

    # --- signals and events -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def _ended_by_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handled = []
        for number in ENDING_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as by nohup
                with contextlib.suppress(ValueError, RuntimeError):  # not in the main thread
                    loop.add_signal_handler(number, self.end)
                    handled.append(number)
        try:
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)

    def end(self) -> None:
        """End in order; asked a second time, at once."""
        if self._end.is_set():
            self._admission.cut()
        self._end.set()

    def _hear(self, event: EngineEvent) -> None:
        if not self._is_up:
            self._loading(event)
        match event:
            case EngineNotice(message=message, hint=hint):
                self._say(f"{message} {hint}".strip())
            case EngineReady() if self._is_up:
                self._say("The engine is back.")
            case EngineDied(restarting=True) if self._is_up:
                self._say("The engine ended unexpectedly; another one is being started.")
            case EngineDied(restarting=False, log_file=log_file) if self._is_up:
                hint = f"Its log is {log_file}." if log_file else ""
                self._give_up(PagedChatError("The engine ended again and again.", hint))
            case IntegrityBroken(message=message, dump=dump):
                hint = f"What was known of it is in {dump}; please report it." if dump else "Please report it."
                self._give_up(PagedChatError(f"The engine's books disagree: {message}.", hint))
            case EngineFailed(message=message, hint=hint) if self._is_up:
                self._give_up(PagedChatError(message, hint))

    def _give_up(self, error: PagedChatError) -> None:
        self._given_up = error
        self._end.set()

    def _uvicorn_config(self, opened: OpenedEngine) -> uvicorn.Config:
        options = self._options
        app = build_app(
            opened.served,
            api_key=options.api_key,
            origins=options.origins,
            log_requests=options.log_requests,
            more_routes=[opened.attach.route],
        )
        return uvicorn.Config(
            app,
            http=http_protocol(opened.coming),
            ws="websockets-sansio",
            ws_max_size=2 * MAX_TOLD,
            ws_ping_interval=_PING_SECONDS,
            ws_ping_timeout=_PING_SECONDS,
            ssl_certfile=options.ssl_certfile or None,
            ssl_keyfile=options.ssl_keyfile or None,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=_SECONDS_TO_CLOSE,
        )

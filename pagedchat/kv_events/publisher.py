"""Block events on the network, as vLLM publishes them: PUB for whoever listens, ROUTER for whoever missed some.

A message is `[topic, seq, payload]`, `seq` 8 bytes, big-endian, from 0 on for each engine. To `[b"", seq]` the
ROUTER answers with the batches from there on that are still kept, and an end whose `seq` is 8 bytes of 0xff.

The engine puts what has changed into a queue and goes on. A thread of its own translates and encodes that, all that
is there at once, and sends it without waiting: what a subscriber does not read is held up to a limit and then left
out, for that subscriber alone. Knows the translation, ZeroMQ and threads.
"""

import logging
import os
import socket
import stat
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagedchat.config import KVEventsConfig
from pagedchat.engine.core import EngineCore
from pagedchat.engine.prefix_cache import CachedBlock
from pagedchat.errors import PagedChatError
from pagedchat.events import StepReport
from pagedchat.kv_events.schema import ENCODINGS, BlockEvent, encode
from pagedchat.kv_events.translate import BlockEventTranslator, Change, as_bytes, as_int, changes_of

if TYPE_CHECKING:
    import zmq

log = logging.getLogger("pagedchat.engine")

END = b"\xff" * 8
"""The `seq` behind the last batch of a replay."""
_SEQ_BYTES = 8
_MOST_WAITING = 100_000
"""Reports with news that the thread may be behind; of an engine that gets further ahead no more is told."""
_PAUSE = 0.005
"""Seconds between two batches, at least: an engine may take ten thousand steps a second."""
_LINGER = 200
"""Milliseconds for what is on its way when the engine ends."""
_MOST_ASKED = 1024
"""Bytes of what a subscriber may send: a topic, a number. Who sends more is cut off."""
_BOUND_HOSTS = ("*", "0.0.0.0", "localhost", "127.")  # noqa: S104 - whoever asks for it
"""How hosts begin that are this machine, besides those with `::` in them; any other is connected to, as by vLLM."""


def publisher_of(config: KVEventsConfig) -> "BlockEventPublisher | None":
    """None where nothing is to be told.

    Raises:
        PagedChatError: as for `BlockEventPublisher`.
    """
    return None if config.kv_events_endpoint is None else BlockEventPublisher(config)


class BlockEventPublisher:
    """Publishes from `start` to `close`.

    Args:
        config: where and how; it has an endpoint.
        clock: seconds since 1970.

    Raises:
        PagedChatError: pyzmq is not there, or an endpoint cannot be had.
    """

    def __init__(self, config: KVEventsConfig, clock: Callable[[], float] = time.time) -> None:
        self._config = config
        self._clock = clock
        self._owner = os.getpid()
        self._zmq = _library()
        self._context: zmq.Context[Any] = self._zmq.Context()
        try:
            self._published, self._replay = self._sockets()
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self.endpoint = _bound_to(self._published)
        """Where events are, with the port that was found where any would do."""
        self.replay_endpoint = None if self._replay is None else _bound_to(self._replay)
        self._waiting: deque[list[Change]] = deque()
        self._entry: Callable[[int], CachedBlock | None] = lambda _: None
        self._ring, self._bell = socket.socketpair()
        self._ring.setblocking(False)
        self._bell.setblocking(False)
        self._thread: threading.Thread | None = None
        self._is_closing = self._is_over = self._has_rung = False
        self._sender = _Sender(self._published, config, self._zmq.NOBLOCK)

    def start(self, core: EngineCore) -> None:
        """This engine begins, whose reports are to follow: all that others knew of one before it is gone."""
        self._entry = core.blocks.cache.entry
        name_of = as_int if self._config.kv_events_hashes == "int" else as_bytes
        encoding = ENCODINGS[self._config.kv_events_encoding]
        translator = BlockEventTranslator(encoding, core.limits.block_size, name_of)
        self._thread = threading.Thread(target=self._run, args=(translator,), name="kv-events", daemon=True)
        self._thread.start()

    def add(self, report: StepReport) -> None:
        """Take in the engine's next report, before anything else is asked of the engine. Never waits."""
        if self._is_over or not report.events:
            return
        changes = changes_of(report, self._entry)
        if changes:
            self._waiting.append(changes)
            self._is_over = len(self._waiting) > _MOST_WAITING
            if not self._has_rung:
                self._wake()

    def close(self) -> None:
        """Publish what is there, and end; twice does no harm. In a process forked from its own, nothing happens."""
        if self._is_closing or os.getpid() != self._owner:
            return
        self._is_closing = True
        self._wake()
        if self._thread is None:
            self._close_sockets()
        elif self._thread is not threading.current_thread():  # in which an engine may be collected as garbage
            self._thread.join()

    @property
    def num_published(self) -> int:
        """Batches so far, which is the number of the next one."""
        return self._sender.num_published

    def _wake(self) -> None:
        self._has_rung = True
        with suppress(OSError):  # it has enough to wake up for, or has ended
            self._ring.send(b"\0")

    # --- the sockets --------------------------------------------------------------------------------

    def _sockets(self) -> "tuple[zmq.Socket[Any], zmq.Socket[Any] | None]":
        zmq, config = self._zmq, self._config
        self._context.setsockopt(zmq.IPV6, 1)
        self._context.setsockopt(zmq.MAXMSGSIZE, _MOST_ASKED)
        published = self._context.socket(zmq.PUB)
        published.setsockopt(zmq.SNDHWM, config.kv_events_hwm)
        endpoint = config.kv_events_endpoint or ""
        if _is_here(endpoint):
            self._bind(published, "--kv-events-endpoint", endpoint)
        else:
            published.connect(endpoint)
        if config.kv_events_replay_endpoint is None:
            return published, None
        replay = self._context.socket(zmq.ROUTER)
        replay.setsockopt(zmq.SNDHWM, config.kv_events_buffer + 1)  # all of an answer, and no more
        self._bind(replay, "--kv-events-replay-endpoint", config.kv_events_replay_endpoint)
        return published, replay

    def _bind(self, bound: "zmq.Socket[Any]", option: str, endpoint: str) -> None:
        if endpoint.startswith("ipc://"):
            _check_path(option, endpoint)
        try:
            bound.bind(endpoint)
        except self._zmq.ZMQError as error:
            raise _no_endpoint(option, endpoint, self._zmq.strerror(error.errno).lower()) from error

    def _close_sockets(self) -> None:
        self._context.destroy(linger=_LINGER)
        self._ring.close()
        self._bell.close()
        for endpoint in (self.endpoint, self.replay_endpoint or ""):
            if endpoint.startswith("ipc://"):
                with suppress(OSError):  # whoever has cleared it away
                    Path(endpoint.removeprefix("ipc://")).unlink()

    # --- the thread ---------------------------------------------------------------------------------

    def _run(self, translator: BlockEventTranslator) -> None:
        try:
            self._publish_all(translator)
        except Exception:
            log.exception("Block events are published no longer.")
        finally:
            self._is_over = True
            self._waiting.clear()
            self._close_sockets()

    def _publish_all(self, translator: BlockEventTranslator) -> None:
        sender = self._sender
        cleared = ENCODINGS[self._config.kv_events_encoding].cleared()
        sender.publish(self._clock(), [cleared])
        poller = self._zmq.Poller()
        poller.register(self._bell, self._zmq.POLLIN)
        if self._replay is not None:
            poller.register(self._replay, self._zmq.POLLIN)
        while not self._is_over:
            ready = dict(poller.poll())
            if self._bell.fileno() in ready:
                self._bell.recv(1 << 16)
                self._has_rung = False
            is_last = self._is_closing
            events = translator.translate(self._take_waiting())
            if events:
                sender.publish(self._clock(), events)
            if self._replay is not None and self._replay in ready:
                sender.answer(self._replay)
            if is_last:
                return
            time.sleep(_PAUSE)
        log.error("Block events are published no longer: they came faster than they could be told.")
        sender.publish(self._clock(), [cleared])

    def _take_waiting(self) -> list[Change]:
        changes: list[Change] = []
        while self._waiting:
            changes += self._waiting.popleft()
        return changes


class _Sender:
    """Numbers what is published, and keeps it."""

    def __init__(self, published: "zmq.Socket[Any]", config: KVEventsConfig, no_wait: int) -> None:
        self._published = published
        self._no_wait = no_wait
        self._topic = config.kv_events_topic.encode()
        self._head = [self._topic] if config.kv_events_encoding == "map" else []
        """Of replayed batches: releases that wrote arrays left the topic out."""
        self._kept: deque[tuple[bytes, bytes]] = deque(maxlen=config.kv_events_buffer)
        self.num_published = 0

    def publish(self, ts: float, events: list[BlockEvent]) -> None:
        """To whoever listens, and keeps up."""
        seq, payload = self.num_published.to_bytes(_SEQ_BYTES, "big"), encode(ts, events)
        self.num_published += 1
        self._kept.append((seq, payload))
        self._published.send_multipart([self._topic, seq, payload], self._no_wait)

    def answer(self, replay: "zmq.Socket[Any]") -> None:
        """One request for what was missed; what is none is passed over."""
        frames = replay.recv_multipart(self._no_wait)
        if len(frames) != 3 or frames[1] or len(frames[2]) != _SEQ_BYTES:
            return
        asker, first = frames[0], frames[2]
        for seq, payload in self._kept:
            if seq >= first:
                replay.send_multipart([asker, b"", *self._head, seq, payload], self._no_wait)
        head = [b""] * len(self._head)
        replay.send_multipart([asker, b"", *head, END, b""], self._no_wait)


def _library() -> Any:
    try:
        import zmq  # noqa: PLC0415 - an extra that few need
    except ImportError:
        raise PagedChatError(
            "Block events are published through pyzmq, which is not installed.",
            "Install it: pip install 'pagedchat[serve]'.",
        ) from None
    return zmq


def _is_here(endpoint: str) -> bool:
    """Whether an endpoint is to be bound."""
    host = endpoint.removeprefix("tcp://")
    return endpoint.startswith("ipc://") or host.startswith(_BOUND_HOSTS) or "::" in host


def _check_path(option: str, endpoint: str) -> None:
    """Whatever has the name of a local socket is replaced by ZeroMQ without a question.

    Raises:
        PagedChatError: it is a file, or somebody listens there.
    """
    path = Path(endpoint.removeprefix("ipc://"))
    if not path.exists():
        return
    if not stat.S_ISSOCK(path.stat().st_mode):
        raise _no_endpoint(option, endpoint, "there is a file of that name")
    with socket.socket(socket.AF_UNIX) as other, suppress(ConnectionRefusedError):
        other.connect(str(path))
        raise _no_endpoint(option, endpoint, "address already in use")


def _bound_to(bound: "zmq.Socket[Any]") -> str:
    endpoint: Any = bound.last_endpoint
    return str(endpoint.rstrip(b"\0").decode())


def _no_endpoint(option: str, endpoint: str, why: str) -> PagedChatError:
    return PagedChatError(f"{option} {endpoint} cannot be had: {why}.", "Give another one, or end what has it.")

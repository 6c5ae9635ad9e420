"""The thread that starts the processes of all ranks but the first, hears them, and ends them all when one is lost:
dead, silent, or at one batch for too long. Knows processes and messages, no model and no torch.
"""

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait

from pagedchat.distributed.messages import Arrived, Beat, Done, Failed, Join, Loaded, encoded, from_worker
from pagedchat.errors import DeviceError, PagedChatError
from pagedchat.own_process import environment

log = logging.getLogger(__name__)

_LOOK = 0.5
"""Seconds between two looks at those who are silent."""
_PAUSE = 4 * _LOOK
"""Seconds between two looks after which it was this process that did not look."""
SETTLE = 5.0
"""Seconds in which it becomes clear why a sum has failed."""


@dataclass(slots=True)
class Worker:
    """One process, and what was heard of it."""

    rank: int
    process: subprocess.Popen[bytes]
    pipe: Connection
    has_arrived: bool = False
    loaded: Loaded | None = None
    last_heard: float = field(default_factory=time.monotonic)
    number: int = 0
    """The last one that it has computed."""
    step_seconds: float = 0.0
    busy: float = 0.0
    """For how long it has been at a batch, when it last said so."""
    told: Failed | None = None
    """Why it ends."""


class Watch:
    """What the watching thread has in common with the others; it must not keep `Workers` alive.

    Args:
        join: what each process is told, but for its rank.
        silence, longest_step: seconds, see `Workers`.
    """

    def __init__(self, join: Join, silence: float, longest_step: float) -> None:
        self.join = join
        self.on_lost: list[Callable[[], None]] = []
        self.silence, self.longest_step = silence, longest_step
        self.workers: list[Worker] = []
        self.failure: PagedChatError | None = None
        self.error: OSError | None = None
        self.closing = False
        self.changed = threading.Condition()
        self.last_look = time.monotonic()
        self.owner = os.getpid()
        self.wake_reader, self.waker = Pipe(duplex=False)

    def changed_until(self, is_so: Callable[[], bool], seconds: float) -> bool:
        """Whether something comes true in time, or a rank is lost before."""
        with self.changed:
            self.changed.wait_for(lambda: is_so() or self.failure is not None, seconds)
            return is_so()

    def fail(self, failure: PagedChatError) -> None:
        """One is lost: end all of them, and tell whoever wants to know."""
        with self.changed:
            if self.failure is not None or self.closing:
                return
            self.failure = failure
            tells = list(self.on_lost)
        log.error("%s", failure)
        for worker in self.workers:
            _kill(worker)
        for tell in tells:
            with suppress(Exception):
                tell()
        with self.changed:
            self.changed.notify_all()


def start_and_watch(watch: Watch, entry: tuple[str, ...], started: threading.Event) -> None:
    """The thread.

    Args:
        watch: what it notes.
        entry: the command that starts a process.
        started: set when all are there, or one could not be started.
    """
    try:
        for rank in range(1, watch.join.size):
            watch.workers.append(_start(watch, rank, entry))
    except OSError as error:
        watch.error = error
    finally:
        started.set()
    try:
        while not watch.closing and watch.failure is None and watch.error is None:
            _hear(watch)
        while not watch.closing:  # they must not lose the thread that has started them
            watch.wake_reader.poll(None)
            watch.wake_reader.recv_bytes()
    except (EOFError, OSError):
        pass
    finally:
        for worker in watch.workers:
            _kill(worker)
            worker.pipe.close()


def _start(watch: Watch, rank: int, entry: tuple[str, ...]) -> Worker:
    ours, theirs = Pipe()
    with theirs:
        process = subprocess.Popen(  # noqa: S603 - a module of our own
            (*entry, str(theirs.fileno()), str(os.getpid())),
            stdin=subprocess.DEVNULL, stdout=2, pass_fds=(theirs.fileno(),), start_new_session=True,
            env=environment(),
        )  # fmt: skip
    worker = Worker(rank, process, ours)
    join = watch.join
    with suppress(BrokenPipeError):  # it is gone already, which is heard as its end
        ours.send_bytes(encoded(Join(join.config, join.streams, rank, join.size, join.folder)))
    return worker


def _hear(watch: Watch) -> None:
    """What has been said, and who has been silent for too long."""
    by_pipe = {worker.pipe: worker for worker in watch.workers}
    for pipe in wait([*by_pipe, watch.wake_reader], _LOOK):
        worker = by_pipe.get(pipe)  # type: ignore[call-overload]
        if worker is not None and not _take(watch, worker):
            return
    now = time.monotonic()
    if now - watch.last_look > _PAUSE:  # this process has been stopped: nobody else need have been silent
        for worker in watch.workers:
            worker.last_heard = now
    watch.last_look = now
    for worker in watch.workers:
        silent = now - worker.last_heard
        if silent > watch.silence:
            watch.fail(_lost(watch, worker, f"has not been heard of for {silent:.0f} s"))
        elif worker.busy > watch.longest_step:
            watch.fail(_lost(watch, worker, f"has been at one batch for {worker.busy:.0f} s"))


def _take(watch: Watch, worker: Worker) -> bool:
    """Whether there is more to come."""
    try:
        message = from_worker(worker.pipe.recv_bytes())
    except (EOFError, OSError):
        watch.fail(_ended(watch, worker))
        return False
    worker.last_heard = time.monotonic()
    with watch.changed:
        match message:
            case Arrived():
                worker.has_arrived = True
            case Loaded():
                worker.loaded = message
            case Beat(seconds):
                worker.busy = seconds
            case Done(number, seconds):
                worker.number, worker.step_seconds, worker.busy = number, seconds, 0.0
            case Failed():
                worker.told = message
        watch.changed.notify_all()
    return True


def _ended(watch: Watch, worker: Worker) -> PagedChatError:
    """Of one that is gone."""
    with suppress(subprocess.TimeoutExpired):
        worker.process.wait(SETTLE)
    if worker.told is not None and worker.loaded is None:
        return DeviceError(f"{_name(worker)} could not load its part: {worker.told.message}", worker.told.hint)
    if worker.told is not None:
        return _lost(watch, worker, f"failed: {worker.told.message}")
    code = worker.process.returncode
    if code is not None and code < 0:
        return _lost(watch, worker, f"was killed ({signal.Signals(-code).name})")
    return _lost(watch, worker, f"ended (exit code {code})")


def _lost(watch: Watch, worker: Worker, how: str) -> PagedChatError:
    return DeviceError(f"{_name(worker)} {how}, and with it a part of the model.", "The engine must start again.")


def _name(worker: Worker) -> str:
    where = f", on {worker.loaded.device}" if worker.loaded else ""
    return f"Rank {worker.rank} (process {worker.process.pid}{where})"


def _kill(worker: Worker) -> None:
    with suppress(OSError):
        worker.process.kill()


def close(watch: Watch) -> None:
    """End them all."""
    if os.getpid() != watch.owner:
        return  # a fork of its owner leaves them alone
    with watch.changed:
        watch.closing = True
    for worker in watch.workers:
        _kill(worker)
        with suppress(Exception):
            worker.process.wait(SETTLE)
    with suppress(OSError):
        watch.waker.close()

"""The processes of all ranks but the first: started, told, watched, ended.

If one of them dies, or is not heard of for some seconds, all of them are killed and it is said which one it was;
whoever waits for them in a sum then gets an error. Knows processes and messages, no model and no torch.
"""

import logging
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait

from pagedchat.distributed.messages import Arrived, Beat, Done, Failed, Join, Loaded, ToWorker, encoded, from_worker
from pagedchat.errors import DeviceError, PagedChatError
from pagedchat.own_process import command, environment

log = logging.getLogger(__name__)

DEFAULT_ENTRY = command("pagedchat.distributed.worker")
SILENCE = 10.0
"""Seconds without a word after which a rank counts as stuck; it says something every second."""
LONGEST_STEP = 300.0
"""Seconds of one batch after which it does."""
_LOOK = 0.5
"""Seconds between two looks at those who are silent."""
_PAUSE = 4 * _LOOK
"""Seconds between two looks after which it was this process that did not look."""
_SETTLE = 5.0
"""Seconds in which it becomes clear why a sum has failed."""


@dataclass(slots=True)
class _Worker:
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


class Workers:
    """Ranks 1 and up.

    Args:
        join: what each is told, but for its rank.
        entry: the command that starts one.
        silence, longest_step: see `SILENCE` and `LONGEST_STEP`.

    Raises:
        OSError: a process cannot be started.
    """

    def __init__(
        self,
        join: Join,
        entry: tuple[str, ...] = DEFAULT_ENTRY,
        *,
        silence: float = SILENCE,
        longest_step: float = LONGEST_STEP,
    ) -> None:
        self._state = _State(join, silence, longest_step)
        started = threading.Event()
        # The system kills them when the thread ends that has started them: it is the one that watches.
        thread = threading.Thread(target=_start_and_watch, args=(self._state, entry, started), daemon=True)
        thread.name = "ranks"
        thread.start()
        started.wait()
        self.close = weakref.finalize(self, _close, self._state)
        """Kill them all."""
        if self._state.error is not None:
            self.close()
            raise self._state.error

    @property
    def pids(self) -> list[int]:
        """Their processes."""
        return [worker.process.pid for worker in self._state.workers]

    def tell(self, message: ToWorker) -> None:
        """Tell all of them.

        Raises:
            DeviceError: one is lost.
        """
        self.check()
        data = encoded(message)
        try:
            for worker in self._state.workers:
                worker.pipe.send_bytes(data)
        except OSError as error:
            raise self.loss() or error from error

    def wait_arrived(self) -> None:
        """Until all of them are about to connect: who waits for one in a library is not told that it is gone.

        Raises:
            PagedChatError: one is lost.
        """
        self._until(lambda each: each.has_arrived)

    def wait_loaded(self) -> list[Loaded]:
        """Until all of them have their parts; what they say of them.

        Raises:
            PagedChatError: one is lost, or cannot load its part.
        """
        return [loaded for worker in self._until(lambda each: each.loaded) if (loaded := worker.loaded)]

    def wait_done(self, number: int, seconds: float) -> bool:
        """Whether all of them have computed a batch within some seconds."""
        return self._state.changed_until(
            lambda: all(each.number >= number for each in self._state.workers), seconds
        )

    def tell_of_loss(self, tell: Callable[[], None]) -> None:
        """Have something called when one of them is lost, in a thread of this object's; at once if one is."""
        with self._state.changed:
            self._state.on_lost.append(tell)
            is_lost = self._state.failure is not None
        if is_lost:
            tell()

    @property
    def step_seconds(self) -> list[float]:
        """What their last batches took."""
        return [worker.step_seconds for worker in self._state.workers]

    def check(self) -> None:
        """Raise if one is lost.

        Raises:
            PagedChatError: that, and which.
        """
        if self._state.failure is not None:
            raise self._state.failure

    def loss(self) -> PagedChatError | None:
        """Why a sum has failed, if it is because one of them is gone: which becomes known within seconds."""
        self._state.changed_until(lambda: self._state.failure is not None, _SETTLE)
        return self._state.failure

    def _until(self, is_so: Callable[[_Worker], object]) -> list[_Worker]:
        while not self._state.changed_until(lambda: all(map(is_so, self._state.workers)), 1.0):
            self.check()
        return self._state.workers


class _State:
    """What the watching thread has in common with the others; it must not keep `Workers` alive."""

    def __init__(self, join: Join, silence: float, longest_step: float) -> None:
        self.join = join
        self.on_lost: list[Callable[[], None]] = []
        self.silence, self.longest_step = silence, longest_step
        self.workers: list[_Worker] = []
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


def _start_and_watch(state: _State, entry: tuple[str, ...], started: threading.Event) -> None:
    try:
        for rank in range(1, state.join.size):
            state.workers.append(_start(state, rank, entry))
    except OSError as error:
        state.error = error
    finally:
        started.set()
    try:
        while not state.closing and state.failure is None and state.error is None:
            _hear(state)
        while not state.closing:  # they must not lose the thread that has started them
            state.wake_reader.poll(None)
            state.wake_reader.recv_bytes()
    except (EOFError, OSError):
        pass
    finally:
        for worker in state.workers:
            _kill(worker)
            worker.pipe.close()


def _start(state: _State, rank: int, entry: tuple[str, ...]) -> _Worker:
    ours, theirs = Pipe()
    with theirs:
        process = subprocess.Popen(  # noqa: S603 - a module of our own
            (*entry, str(theirs.fileno()), str(os.getpid())),
            stdin=subprocess.DEVNULL, stdout=2, pass_fds=(theirs.fileno(),), start_new_session=True,
            env=environment(),
        )  # fmt: skip
    worker = _Worker(rank, process, ours)
    join = state.join
    ours.send_bytes(encoded(Join(join.config, join.streams, rank, join.size, join.folder)))
    return worker


def _hear(state: _State) -> None:
    """What has been said, and who has been silent for too long."""
    by_pipe = {worker.pipe: worker for worker in state.workers}
    for pipe in wait([*by_pipe, state.wake_reader], _LOOK):
        worker = by_pipe.get(pipe)  # type: ignore[call-overload]
        if worker is not None and not _take(state, worker):
            return
    now = time.monotonic()
    if now - state.last_look > _PAUSE:  # this process has been stopped: nobody else need have been silent
        for worker in state.workers:
            worker.last_heard = now
    state.last_look = now
    for worker in state.workers:
        silent = now - worker.last_heard
        if silent > state.silence:
            state.fail(_lost(state, worker, f"has not been heard of for {silent:.0f} s"))
        elif worker.busy > state.longest_step:
            state.fail(_lost(state, worker, f"has been at one batch for {worker.busy:.0f} s"))


def _take(state: _State, worker: _Worker) -> bool:
    """Whether there is more to come."""
    try:
        message = from_worker(worker.pipe.recv_bytes())
    except (EOFError, OSError):
        state.fail(_ended(state, worker))
        return False
    worker.last_heard = time.monotonic()
    with state.changed:
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
        state.changed.notify_all()
    return True


def _ended(state: _State, worker: _Worker) -> PagedChatError:
    """Of one that is gone."""
    with suppress(subprocess.TimeoutExpired):
        worker.process.wait(_SETTLE)
    if worker.told is not None and worker.loaded is None:
        return DeviceError(f"{_name(worker)} could not load its part: {worker.told.message}", worker.told.hint)
    if worker.told is not None:
        return _lost(state, worker, f"failed: {worker.told.message}")
    code = worker.process.returncode
    if code is not None and code < 0:
        return _lost(state, worker, f"was killed ({signal.Signals(-code).name})")
    return _lost(state, worker, f"ended (exit code {code})")


def _lost(state: _State, worker: _Worker, how: str) -> PagedChatError:
    return DeviceError(f"{_name(worker)} {how}, and with it a part of the model.", "The engine must start again.")


def _name(worker: _Worker) -> str:
    where = f", on {worker.loaded.device}" if worker.loaded else ""
    return f"Rank {worker.rank} (process {worker.process.pid}{where})"


def _kill(worker: _Worker) -> None:
    with suppress(OSError):
        worker.process.kill()


def _close(state: _State) -> None:
    if os.getpid() != state.owner:
        return  # a fork of its owner leaves them alone
    with state.changed:
        state.closing = True
    for worker in state.workers:
        _kill(worker)
        with suppress(Exception):
            worker.process.wait(_SETTLE)
    with suppress(OSError):
        state.waker.close()
    shutil.rmtree(state.join.folder, ignore_errors=True)


def meeting_folder() -> str:
    """A folder that nobody else can enter."""
    return tempfile.mkdtemp(prefix="pagedchat-ranks-")

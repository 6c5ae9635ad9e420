"""The processes of all ranks but the first, as rank 0 has to do with them: told, waited for, ended.

If one of them dies, or is not heard of for some seconds, all of them are killed and it is said which one it was;
whoever waits for them in a sum then gets an error. Knows messages, no model and no torch; `watching` watches.
"""

import tempfile
import threading
import weakref
from collections.abc import Callable
from copy import copy

from pagedchat.distributed.messages import Join, Loaded, ToWorker, encoded
from pagedchat.distributed.watching import SETTLE, Watch, Worker, close, start_and_watch
from pagedchat.errors import PagedChatError
from pagedchat.own_process import command

DEFAULT_ENTRY = command("pagedchat.distributed.worker")
SILENCE = 10.0
"""Seconds without a word after which a rank counts as stuck; it says something every second."""
LONGEST_STEP = 300.0
"""Seconds of one batch after which it does."""


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
        self._watch = Watch(join, silence, longest_step)
        self.num_told = 0
        """Batches."""
        started = threading.Event()
        # The system kills them when the thread ends that has started them: it is the one that watches.
        thread = threading.Thread(target=start_and_watch, args=(self._watch, entry, started), daemon=True)
        thread.name = "ranks"
        thread.start()
        started.wait()
        self.close = weakref.finalize(self, close, self._watch)
        """Kill them all."""
        if self._watch.error is not None:
            self.close()
            raise self._watch.error

    @property
    def pids(self) -> list[int]:
        """Their processes."""
        return [worker.process.pid for worker in self._watch.workers]

    def tell(self, message: ToWorker) -> None:
        """Tell all of them of a batch.

        Raises:
            DeviceError: one is lost.
        """
        self.check()
        self.num_told += 1
        data = encoded(message)
        try:
            for worker in self._watch.workers:
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

    def wait_done(self, seconds: float) -> bool:
        """Whether all of them have computed, within some seconds, all batches that they were told of."""
        return self._watch.changed_until(
            lambda: all(each.number >= self.num_told for each in self._watch.workers), seconds
        )

    def tell_of_loss(self, tell: Callable[[], None]) -> None:
        """Have something called when one of them is lost, in a thread of this object's; at once if one is."""
        with self._watch.changed:
            self._watch.on_lost.append(tell)
            is_lost = self._watch.failure is not None
        if is_lost:
            tell()

    @property
    def step_seconds(self) -> list[float]:
        """What their last batches took."""
        return [worker.step_seconds for worker in self._watch.workers]

    def check(self) -> None:
        """Raise if one is lost.

        Raises:
            PagedChatError: that, and which.
        """
        if self._watch.failure is not None:
            raise like(self._watch.failure)

    def loss(self) -> PagedChatError | None:
        """Why a sum has failed, if it is because one of them is gone: which becomes known within seconds."""
        self._watch.changed_until(lambda: self._watch.failure is not None, SETTLE)
        return None if self._watch.failure is None else like(self._watch.failure)

    def _until(self, is_so: Callable[[Worker], object]) -> list[Worker]:
        while not self._watch.changed_until(lambda: all(map(is_so, self._watch.workers)), 1.0):
            self.check()
        return self._watch.workers


def like(error: PagedChatError) -> PagedChatError:
    """Another one that says the same. One that is raised keeps all that its callers had, for as long as it is kept:
    captured steps, say, which NCCL waits for."""
    return copy(error)


def meeting_folder() -> str:
    """A folder that nobody else can enter."""
    return tempfile.mkdtemp(prefix="pagedchat-ranks-")

"""Main of a rank's process: `python -m pagedchat.distributed.worker FD PARENT`.

FD is one end of a pipe to the process of rank 0, PARENT that process. A part of a model is loaded, then batches are
run as rank 0 tells them. When rank 0 is gone, so is this process, whatever it is doing.
"""

import logging
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue

from pagedchat.distributed.life import end_with_parent
from pagedchat.distributed.messages import (
    Arrived,
    Beat,
    Done,
    Failed,
    FromWorker,
    Join,
    Loaded,
    NewBatch,
    NextOfRun,
    PrepareMore,
    encoded,
    to_worker,
)
from pagedchat.errors import PagedChatError, first_line

_BEAT = 1.0
"""Seconds."""

log = logging.getLogger("pagedchat.rank")


class _Link:
    """The pipe, as several threads use it."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self.batches: SimpleQueue[NewBatch | NextOfRun | PrepareMore] = SimpleQueue()
        self.began: float | None = None
        """When the present batch was."""

    def say(self, message: FromWorker) -> None:
        with self._lock, suppress(OSError):  # who does not hear it is gone, which ends this process
            self._pipe.send_bytes(encoded(message))

    def listen(self) -> None:
        """The reader thread."""
        with suppress(EOFError, OSError):
            while True:
                message = to_worker(self._pipe.recv_bytes())
                if not isinstance(message, Join):
                    self.batches.put(message)
        os._exit(0)

    def beat(self) -> None:
        """The thread that says every second that this process lives."""
        while True:
            began = self.began
            self.say(Beat(0.0 if began is None else time.monotonic() - began))
            time.sleep(_BEAT)


def main(argv: list[str]) -> int:
    """Run a rank; returns the exit code."""
    descriptor, parent = map(int, argv)
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    pipe = Connection(descriptor)
    try:
        join = to_worker(pipe.recv_bytes())
    except EOFError:
        return 0
    if not isinstance(join, Join):
        return 1
    link = _Link(pipe)
    for target in (link.listen, link.beat):
        threading.Thread(target=target, daemon=True).start()
    try:
        _run(join, link)
    except PagedChatError as error:
        link.say(Failed(error.message, error.hint))
    except Exception as error:
        log.exception("Rank %d failed.", join.rank)
        link.say(Failed(f"{type(error).__name__}: {first_line(error):.300}."))
    # Without the farewells of libraries, which may wait for ranks that are gone.
    sys.stderr.flush()
    os._exit(1)


def _run(join: Join, link: _Link) -> None:
    """Load a part, then run batches, and prepare for others, for as long as there is something to do."""
    from pagedchat.distributed.batches import Listener  # noqa: PLC0415 - after the threads are there
    from pagedchat.distributed.joining import load_part  # noqa: PLC0415

    part = load_part(join, lambda: link.say(Arrived()))
    listener = Listener()
    link.say(Loaded(part.device, part.memory))
    while True:
        message = link.batches.get()
        began = link.began = time.monotonic()
        if isinstance(message, PrepareMore):
            part.prepare_more()
        else:
            part.runner.execute(listener.hear(message))
        link.began = None
        link.say(Done(message.number, time.monotonic() - began))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

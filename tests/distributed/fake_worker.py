"""A rank without a model: as `pagedchat.distributed.worker`, and it does what the model's name says."""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection

from pagedchat.distributed.life import end_with_parent
from pagedchat.distributed.messages import Arrived, Beat, Done, Failed, Join, Loaded, encoded, to_worker


def main(descriptor: int, parent: int) -> None:
    end_with_parent(parent)
    pipe = Connection(descriptor)
    join = to_worker(pipe.recv_bytes())
    assert isinstance(join, Join)
    what = join.config.model.model
    if what != "never arrives":
        pipe.send_bytes(encoded(Arrived()))
    if what == "cannot load":
        pipe.send_bytes(encoded(Failed("There is no room.", "Free some memory.")))
        os._exit(1)
    if what == "ends":
        os._exit(3)
    pipe.send_bytes(encoded(Loaded(f"device {join.rank}", 1024)))
    lock = threading.Lock()

    def beat() -> None:
        while True:
            with lock, suppress(OSError):
                pipe.send_bytes(encoded(Beat(1000.0 if what == "never ends a batch" else 0.0)))
            time.sleep(0.05)

    threading.Thread(target=beat, daemon=True).start()
    with suppress(EOFError):
        while True:
            message = to_worker(pipe.recv_bytes())
            if what == "dies in a batch" and join.rank == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            if what == "fails in a batch":
                pipe.send_bytes(encoded(Failed("RuntimeError: it does not work.")))
                os._exit(1)
            with lock:
                pipe.send_bytes(encoded(Done(message.number, 0.25)))  # type: ignore[union-attr]
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

"""Variants built, and loaded, in the background before anybody asks for them."""

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue

from pagedchat.errors import KernelError
from pagedchat.jit.builder import KernelBuilder, num_cores
from pagedchat.jit.variant import Variant

_CORES_LEFT = 2
"""For whoever works meanwhile, and what it starts."""
_NICENESS = 10
_TURN_SECONDS = 5e-4
"""For which a thread of Python may keep others waiting meanwhile. An eager step gives its turn away with every
launch, so that at Python's 5 ms each of them takes so long where another thread has much to read."""


class BuildAhead:
    """Begins when it is made, on threads of its own. Who needs a kernel before its turn builds it without waiting.

    What cannot be built is passed over: whoever asks for it is told why.

    Args:
        builder: keeps the cubins.
        variants: each of them once.
        architecture: for which.
        quietly: whether somebody is being served meanwhile: then a few cores and a low priority have to do.
        load: what is done with each that is built, on the same threads; what it raises as a KernelError is passed
            over likewise.
    """

    def __init__(
        self,
        builder: KernelBuilder,
        variants: Iterable[Variant],
        architecture: str,
        *,
        quietly: bool = False,
        load: Callable[[Variant], None] = lambda _variant: None,
    ) -> None:
        self._builder = builder
        self._load = load
        self._architecture = architecture
        self._quietly = quietly
        self.failure: KernelError | None = None
        """Why one could not be built, once all were tried."""
        self._waiting: SimpleQueue[Variant] = SimpleQueue()
        wanted = set(variants)
        for variant in wanted:
            self._waiting.put(variant)
        self._left = len(wanted)
        self._lock = threading.Lock()
        self._done = threading.Event()
        if not wanted:
            self._done.set()
        num_threads = max(1, (num_cores() - _CORES_LEFT) // 2) if quietly else num_cores()
        for _ in range(min(len(wanted), num_threads)):
            threading.Thread(target=self._run, name="build-ahead").start()

    def wait(self, seconds: float | None = None) -> bool:
        """Until all are there, or so many seconds at most; says whether they are."""
        return self._done.wait(seconds)

    def _run(self) -> None:
        """Until nothing is left, or the program ends: a compiler that is cut off may take the process with it."""
        if self._quietly:
            _let_others_go_first()
        with _turns.short():
            self._build()

    def _build(self) -> None:
        while threading.main_thread().is_alive():
            try:
                variant = self._waiting.get_nowait()
            except Empty:
                return
            try:
                build = self._builder.build(variant, self._architecture)
                self.failure = build.error or self.failure
                if build.cubin is not None:
                    self._load(variant)
            except KernelError as error:
                self.failure = error
            finally:
                self._note()

    def _note(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._done.set()


class _Turns:
    """How long threads of Python run before others may: shorter while anybody wants it so."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_wanting, self._before = 0, 0.0

    @contextmanager
    def short(self) -> Iterator[None]:
        """While this is entered by any thread."""
        with self._lock:
            if self._num_wanting == 0:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before, _TURN_SECONDS))
            self._num_wanting += 1
        try:
            yield
        finally:
            with self._lock:
                self._num_wanting -= 1
                if self._num_wanting == 0:
                    sys.setswitchinterval(self._before)


_turns = _Turns()


def _let_others_go_first() -> None:
    """The threads of other work; where a thread has a priority of its own, which is on Linux."""
    with suppress(AttributeError, OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)

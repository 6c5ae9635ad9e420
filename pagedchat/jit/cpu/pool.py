"""Threads that go through a table of jobs together: one call from Python, whatever the number of jobs. Between
calls they spin for microseconds and then sleep. Knows no kernel; `pool_code` says how jobs are shared.
"""

import ctypes
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock, Thread
from weakref import WeakSet

from pagedchat.jit.cpu import pool_code as code
from pagedchat.jit.cpu.cache import ObjectCache
from pagedchat.jit.cpu.library import Library
from pagedchat.jit.cpu.target import CpuTarget

_SYSTEM = (
    "sched_yield",
    "pthread_mutex_lock",
    "pthread_mutex_unlock",
    "pthread_cond_wait",
    "pthread_cond_broadcast",
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """A kernel over a number of units, each of which one thread does."""

    function: int
    """Address of the kernel."""
    units: int
    chunk: int
    """Units that a thread takes at a time."""
    arguments: Sequence[int]
    """Words: addresses and sizes, at most `pool_code.MAX_ARGUMENTS`."""


class Pool:
    """Whoever calls, and `num_threads - 1` workers, who end with the process, or by `close`. Where the system gives
    fewer threads, or in a process that was forked off, which has none of its parent's, those that there are do it
    all.

    Args:
        num_threads: at least 1.
        target: of this machine.
        cache: where its code is kept.
    """

    def __init__(self, num_threads: int, target: CpuTarget, cache: ObjectCache) -> None:
        library = Library(str(code.pool_module(target)), target, cache)
        self._run = library.function("run", ctypes.c_void_p, ctypes.c_void_p)
        self._leave = library.function("leave", ctypes.c_void_p)
        self._work = library.function("work", ctypes.c_void_p)
        self._memory, self._state = aligned_buffer(code.STATE_BYTES)
        self._library = library
        self._lock = Lock()
        self._prepare_state()
        self._workers: list[Thread] = []
        self._start_workers(num_threads - 1)
        self.num_threads = 1 + len(self._workers)
        """That compute."""
        _pools.add(self)

    def _start_workers(self, wanted: int) -> None:
        for i in range(wanted):
            worker = Thread(target=self._work, args=(self._state,), name=f"cpu kernels {i + 1}", daemon=True)
            try:
                worker.start()
            except RuntimeError as error:
                _log.warning("CPU kernels have %d of %d threads: %s", i + 1, wanted + 1, error)
                return
            self._workers.append(worker)

    def begin_alone(self) -> None:
        """In a process that was forked off: nobody is inside, and nobody will come."""
        self._workers, self.num_threads = [], 1
        self._lock = Lock()
        ctypes.memset(self._state, 0, code.STATE_BYTES)
        self._prepare_state()

    def run(self, program: "Program") -> None:
        """All jobs, one after the other; each is done before the next begins."""
        with self._lock:
            self._run(self._state, program.address)

    def wait_until_left(self) -> None:
        """Until no worker looks at a program of before."""
        self._leave(self._state)

    def close(self) -> None:
        """Send the workers home."""
        system = ctypes.CDLL(None)
        mutex, condition = ctypes.c_void_p(self._state + code.MUTEX), ctypes.c_void_p(self._state + code.CONDITION)
        system.pthread_mutex_lock(mutex)
        self._word(code.STOP).value = 1
        system.pthread_cond_broadcast(condition)
        system.pthread_mutex_unlock(mutex)
        for worker in self._workers:
            worker.join()

    def _word(self, where: int) -> ctypes.c_int64:
        return ctypes.c_int64.from_address(self._state + where)

    def _prepare_state(self) -> None:
        system = ctypes.CDLL(None)
        for i, name in enumerate(_SYSTEM):
            address = ctypes.cast(getattr(system, name), ctypes.c_void_p).value
            self._word(code.ADDRESSES + 8 * i).value = address or 0
        system.pthread_mutex_init(ctypes.c_void_p(self._state + code.MUTEX), None)
        system.pthread_cond_init(ctypes.c_void_p(self._state + code.CONDITION), None)


_pools: WeakSet[Pool] = WeakSet()


def _begin_alone() -> None:
    for pool in list(_pools):
        pool.begin_alone()


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(after_in_child=_begin_alone)


class Program:
    """A table of jobs in memory. What the jobs' arguments point to is the business of whoever made them.

    Args:
        pool: that runs it.
        jobs: in order.
    """

    def __init__(self, pool: Pool, jobs: Sequence[Job]) -> None:
        self._pool = pool
        num_bytes = code.HEAD_BYTES + len(jobs) * code.JOB_BYTES
        self._memory, self.address = aligned_buffer(num_bytes)
        self._words = (ctypes.c_int64 * (num_bytes // 8)).from_address(self.address)
        self._words[0] = len(jobs)
        for i, job in enumerate(jobs):
            self._words[self._word(i, code.FUNCTION)] = job.function
            self._words[self._word(i, code.CHUNK)] = max(1, job.chunk)
            self.set_units(i, job.units)
            for j, argument in enumerate(job.arguments):
                self.set_argument(i, j, argument)

    def set_units(self, job: int, units: int) -> None:
        """How much there is to do, from the next run on."""
        self._words[self._word(job, code.UNITS)] = units

    def set_argument(self, job: int, index: int, word: int) -> None:
        """Another argument, from the next run on."""
        self._words[self._word(job, code.ARGUMENTS) + index] = word

    @staticmethod
    def _word(job: int, where: int) -> int:
        return (code.HEAD_BYTES + job * code.JOB_BYTES + where) // 8

    def run(self) -> None:
        """All of it."""
        self._pool.run(self)

    def __del__(self) -> None:
        self._pool.wait_until_left()


def aligned_buffer(num_bytes: int) -> tuple[object, int]:
    """Zeros that begin on a cache line: what keeps them, and their address."""
    memory = ctypes.create_string_buffer(num_bytes + 64)
    start = ctypes.addressof(memory)
    return memory, start + -start % 64

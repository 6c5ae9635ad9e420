"""How this process uses threads and memory for work on a CPU. Most of it must be said before torch is loaded.

What the user's environment says comes first.
"""

import ctypes
import os
from weakref import WeakSet

_SPIN_COUNT = "10000"
"""Rounds (some ten microseconds) that a thread spins at a barrier before it sleeps.

GNU OpenMP spins for milliseconds by default. On an idle machine that is best by a little; but where another
program is busy, or the screen of this one, a spinning thread keeps the very core on which the thread that it
waits for wants to run. A decode step of a model with 14 million parameters on two cores, idle and beside one
busy process, took 3.2 and 720 ms with the default, 3.4 and 30 ms with this.
"""

_KEPT_PRODUCTS = "64"
"""Shapes for which oneDNN keeps the code of a product that it has compiled for it.

A product is compiled for its number of rows, so batches of every size leave half a megabyte for each layer's shape:
with oneDNN's own 1,024 an engine goes on growing for tens of thousands of steps, by 200 MiB for the tiniest model.
What is dropped and comes again costs half a millisecond. oneDNN counts in one cache, what torch calls it through in
another, and either one keeps the code alive.
"""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEEP_BYTES = 1 << 30
"""Freed buffers up to this size stay with the process while there is a model.

The activations of a long prompt are buffers of some megabytes, which glibc returns to the system at every step and
asks for again; then each of their pages is faulted in anew. A prefill of 1,024 tokens took up to twice as long.
"""
_USUAL_TRIM_BYTES, _USUAL_MMAP_BYTES = 64 << 20, 32 << 20
"""How far glibc raises both by itself in a process with large buffers; once they are set it leaves them alone."""

models: "WeakSet[object]" = WeakSet()
"""Those that are loaded, or what runs them."""


def tune_for_cpu() -> None:
    """Make OpenMP threads sleep soon where they wait, use huge pages for tensors, keep freed buffers, and bound
    what is kept of compiled products."""
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = _SPIN_COUNT
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # read by torch; weights and cache in 2 MiB pages
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", _KEPT_PRODUCTS)
    os.environ.setdefault("LRU_CACHE_CAPACITY", _KEPT_PRODUCTS)
    _set_thresholds(_KEEP_BYTES, _KEEP_BYTES)


def give_back_freed_buffers() -> None:
    """Return to the system what was kept; where no model is left, keep nothing from now on."""
    if not models:
        _set_thresholds(_USUAL_TRIM_BYTES, _USUAL_MMAP_BYTES)
    give_back_now()


def give_back_now() -> None:
    """Return what is free at this moment, and go on as before."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _set_thresholds(trim_bytes: int, mmap_bytes: int) -> None:
    """Only glibc knows `mallopt`; elsewhere nothing happens."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        mallopt(_M_MMAP_THRESHOLD, mmap_bytes)
        mallopt(_M_TRIM_THRESHOLD, trim_bytes)

"""Memory that is pinned in the background: what was begun is ended, and nobody keeps what nobody wants."""

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from threading import Event
from threading import enumerate as all_threads
from typing import Any

import pytest
import torch

from pagedchat.runtime.attention import host_cache as module
from pagedchat.runtime.attention.host_cache import HostCache

PIECE = 1024
GPU = torch.device("cuda")
END_OF_PROGRAM = """
import os, sys, threading
from contextlib import nullcontext
import torch
from pagedchat.runtime.attention import host_cache as module

waits_in = sys.argv[1]
begun = threading.Event()

def wait_for_the_end():
    begun.set()
    threading.main_thread().join()
    threading.Event().wait(0.1)  # the interpreter is well on its way out

def say(word):
    os.write(1, word.encode() + b"\\n")

class Runtime:
    def cudaHostRegister(self, *_):
        say("begun")
        if waits_in == "driver":
            wait_for_the_end()
        say("ended")
        return 0

def touch(piece):
    say("touched")
    if waits_in == "memory":
        wait_for_the_end()

module._PIECE_BYTES = 1024
module._cudart = Runtime
torch.cuda.device = lambda _: nullcontext()
torch.Tensor.zero_ = touch
cache = module.HostCache((4, 1024), torch.uint8, torch.device("cuda"))
cache.prepare()
begun.wait()
"""


class Runtime:
    """Stands in for CUDA's: a registration lasts until it may end."""

    def __init__(self) -> None:
        self.registered: list[int] = []
        self.unregistered: list[int] = []
        self.is_asked, self.may_end = Event(), Event()

    def cudaHostRegister(self, address: int, _size: int, _flags: int) -> int:  # noqa: N802
        self.is_asked.set()
        assert self.may_end.wait(10)
        self.registered.append(address)
        return 0

    def cudaHostUnregister(self, address: int) -> None:  # noqa: N802
        self.unregistered.append(address)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    fake = Runtime()
    monkeypatch.setattr(module, "_PIECE_BYTES", PIECE)
    monkeypatch.setattr(module, "_cudart", lambda: fake)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    return fake


def end_of_pinning() -> None:
    for thread in all_threads():
        if thread.name == "pin-host-cache":
            thread.join(10)
            assert not thread.is_alive()


def make_cache() -> tuple[HostCache, "weakref.ref[Any]"]:
    cache = HostCache((4, PIECE), torch.uint8, GPU)
    cache.prepare()
    return cache, weakref.ref(cache._memory)


def test_memory_is_pinned_once_and_given_back_with_its_cache(runtime: Runtime) -> None:
    runtime.may_end.set()
    cache, memory = make_cache()
    assert not bool(cache.tensor.any())
    address = cache.tensor.data_ptr()
    assert (runtime.registered, runtime.unregistered) == ([address], [])
    del cache
    gc.collect()
    assert runtime.unregistered == [address]
    assert memory() is None


def test_a_cache_that_goes_while_it_is_registered_is_given_back_afterwards(runtime: Runtime) -> None:
    cache, memory = make_cache()
    assert runtime.is_asked.wait(10)
    del cache
    gc.collect()
    assert runtime.unregistered == []
    runtime.may_end.set()
    end_of_pinning()
    assert runtime.unregistered == runtime.registered != []
    assert memory() is None


def test_a_cache_that_goes_while_its_memory_is_touched_is_not_registered(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched: list[int] = []
    begun, may_go_on = Event(), Event()

    def touch(piece: torch.Tensor) -> None:
        touched.append(piece.nbytes)
        begun.set()
        assert may_go_on.wait(10)

    monkeypatch.setattr(torch.Tensor, "zero_", touch)
    cache, memory = make_cache()
    assert begun.wait(10)
    del cache
    gc.collect()
    may_go_on.set()
    end_of_pinning()
    assert touched == [PIECE]
    assert not runtime.is_asked.is_set()
    assert memory() is None


def test_nothing_is_pinned_for_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Callable[..., int]:
        raise AssertionError("no driver is asked")

    monkeypatch.setattr(module, "_cudart", refuse)
    cache = HostCache((2, 3), torch.float32, torch.device("cpu"))
    assert cache.tensor.shape == (2, 3)


@pytest.mark.parametrize(
    ("waits_in", "told"), [("driver", ["touched"] * 4 + ["begun", "ended"]), ("memory", ["touched"])]
)
def test_the_end_of_the_program_cuts_nothing_off(waits_in: str, told: list[str]) -> None:
    """What was begun is ended, and nothing more is begun."""
    done = subprocess.run(
        [sys.executable, "-c", END_OF_PROGRAM, waits_in], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.split() == told
    assert (done.returncode, done.stderr) == (0, "")

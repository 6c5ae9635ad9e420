"""For every test: no model hub, GPU tests only where there is a GPU, and little search for garbage."""

import gc
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import psutil
import pytest
from hypothesis import settings

from pagedchat.garbage import imports
from tests.deep import deep_cases

# Before anything imports huggingface_hub, which reads them once.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Whatever a test runs, it reads and writes no history of whoever runs it.
_DATA_HOME = tempfile.TemporaryDirectory(prefix="pagedchat-tests-")
os.environ["XDG_DATA_HOME"] = _DATA_HOME.name
# Before anything imports torch: tests run side by side, one to a core, and tiny models run fastest on one thread.
os.environ["OMP_NUM_THREADS"] = "1"
# Searched for garbage is when a test says so, and now and then: Python's own thresholds took a tenth of the time.
gc.set_threshold(20_000, 20, 20)
# The settings of whoever runs the tests are not those that are tested.
os.environ["PAGEDCHAT_CONFIG"] = ""
os.environ["XDG_CONFIG_HOME"] = os.path.join(os.path.dirname(__file__), "no-settings")


# Machines are busy; what must be quick has a test of its own. Every run has the same examples, so that what fails
# is what was changed; asked for a number of them, or with --deep, it looks for others. tools/fuzz goes further.
_EXAMPLES = os.environ.get("PAGEDCHAT_EXAMPLES", "")
settings.register_profile("same", deadline=None, max_examples=30, derandomize=True, database=None)
settings.register_profile("others", deadline=None, max_examples=int(_EXAMPLES or "30"))
settings.load_profile("others" if _EXAMPLES else "same")


@pytest.fixture(autouse=True)
def _nothing_on_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a shell's `</dev/null` is: the program reads what is there."""
    monkeypatch.setattr(sys, "stdin", io.StringIO())


@pytest.fixture(autouse=True)
def _leaves_the_gpu_to_others(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests share a GPU with those of other processes: a pool that stays is memory that none of them gets."""
    yield
    if request.node.get_closest_marker("gpu") and _has_gpu():
        import torch

        if not torch.cuda.is_initialized():
            return
        _, whole = torch.cuda.mem_get_info()
        if torch.cuda.memory_reserved() > _SHARE_OF_A_PROCESS * whole:
            gc.collect()
            torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved() <= _SHARE_OF_A_PROCESS * whole


_SHARE_OF_A_PROCESS = 1 / 8
"""Of a GPU, that a test may leave with those after it in its process."""
_GROWTH = 700 << 20
"""Bytes that a process grows by from one search of everything, which takes four seconds, to the next."""
_process, _size = psutil.Process(), pytest.StashKey[int]()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """What it makes stays, modules above all: nobody looks through it for garbage, then or later. It is put aside
    before searches may begin, the first of which would have a second's work with it."""
    with imports():
        result = yield
    session.config.stash[_size] = _process.memory_info().rss
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[bool]:
    """What is there after a test is left out of searches: a screen that ends takes back what was left out, and half
    of the time of those that follow goes by looking through modules. Everything is searched once it is worth it."""
    result = yield
    if _process.memory_info().rss > item.config.stash[_size] + _GROWTH:
        gc.unfreeze()
        gc.collect()
        item.config.stash[_size] = _process.memory_info().rss
    gc.freeze()
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Torch has one thread again. If it had two, they would wait for each other in all tests that follow in this
    process, spinning on a core that others want: some took ten times as long."""
    yield
    if torch := sys.modules.get("torch"):
        num_threads = torch.get_num_threads()
        torch.set_num_threads(1)
        assert num_threads == 1, f"{item.nodeid} leaves torch with {num_threads} threads"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Ask for every case of every test; see deep.py."""
    parser.addoption("--deep", action="store_true", help="run every case of the longest tests, too")


def pytest_configure(config: pytest.Config) -> None:
    """Look for other examples than the usual ones, too."""
    if config.option.deep:
        settings.load_profile("others")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what cannot run here, and of the longest tests what need not."""
    leave_out_gpu(config, items)
    names_one = any("::" in argument for argument in config.args)
    if not (config.option.deep or names_one or _has_gpu()):
        deep = deep_cases(items)
        config.hook.pytest_deselected(items=list(deep))
        items[:] = [item for item in items if item not in deep]


def leave_out_gpu(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests marked `gpu` on a machine without one, which are thousands; who asks for them sees them
    skipped. Torch is asked only if there are such tests."""
    of_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not of_gpu or _has_gpu():
        return
    if "gpu" in config.option.markexpr:
        for item in of_gpu:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU"))
        return
    config.hook.pytest_deselected(items=of_gpu)
    items[:] = [item for item in items if not item.get_closest_marker("gpu")]


def pytest_report_header() -> str:
    """Says so, since processes that share the tests out do not."""
    return "" if _has_device() else "no CUDA GPU: tests marked gpu are left out"


@cache
def _has_gpu() -> bool:
    if not _has_device():
        return False
    import torch

    return torch.cuda.is_available()


def _has_device() -> bool:
    return Path("/dev/nvidiactl").exists()

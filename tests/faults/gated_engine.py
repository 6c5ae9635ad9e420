"""Engines in whose work there are gates: at each something can be ordered to happen, just there and just once.

The engine's model is named by the folder in which the orders lie. `load` is for an engine process, `Gates` for the
test that orders.
"""

import asyncio
import contextlib
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psutil

from pagedchat.config import CacheConfig, EngineConfig, ModelConfig
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.output import ModelRunnerOutput, SchedulerOutput
from pagedchat.errors import DeviceError
from pagedchat.events import LoadProgress
from pagedchat.jit.cache import KernelCache
from pagedchat.jit.compiler import Cubin
from tests.fakes import FakeModelRunner
from tests.service.fake_engine import BLOCK_SIZE, ENTRY, FakeLoaded, ready_info

LOADER = "tests.faults.gated_engine:load"
GATED_ENTRY = (*ENTRY, LOADER)
NUM_BLOCKS = 48
STEP_PHASES = ("prefill", "decode", "copy", "swap")
PHASES = ("loading", "compiling", *STEP_PHASES)
CUBIN = Cubin(b"machine code " * 1000, (), 0.5, "")
STOPPED = float(os.environ.get("PAGEDCHAT_TEST_STOPPED", "0.3"))
"""Seconds for which a process is stopped; more by hand."""
YEAR = 365 * 24 * 60 * 60.0
LITTLE_MEMORY = 60 << 20
FULL = 4096
"""Bytes to which a file may grow on what stands for a full disk."""
LOST = "the device does not answer any more"


# --- in the engine process --------------------------------------------------------------------------


def load(config: EngineConfig, progress: Any) -> FakeLoaded:
    """A pool for two long replies that do not fit both, host memory, and a kernel to be compiled and kept."""
    orders = Path(config.model.model)
    progress(LoadProgress("weights", "reading weights", 1, 1, "tensors"))
    print("said by a library")
    pass_gate(orders, "loading")
    _compile(orders)
    runner = GatedRunner(orders)
    limits = EngineLimits(
        num_blocks=NUM_BLOCKS, num_host_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, model_len=1000,
        preemption_mode="swap",
    )  # fmt: skip
    return FakeLoaded(runner, limits, ready_info(num_blocks=NUM_BLOCKS, num_host_blocks=NUM_BLOCKS))


def load_by_a_clock_that_jumps_forwards(config: EngineConfig, progress: Any) -> FakeLoaded:
    """As `load`, where what the clock on the wall says has nothing to do with the time."""
    time.time = jumping_clock(YEAR)
    return load(config, progress)


def load_by_a_clock_that_jumps_backwards(config: EngineConfig, progress: Any) -> FakeLoaded:
    """As above."""
    time.time = jumping_clock(-YEAR)
    return load(config, progress)


def jumping_clock(seconds: float) -> Callable[[], float]:
    """By so much at every look."""
    dates = count(time.time(), seconds)
    return lambda: next(dates)


def load_in_little_memory(config: EngineConfig, progress: Any) -> Any:
    """The model in the box, with less memory than its weights take."""
    import pagedchat.models.native_loader
    import pagedchat.runtime.loading.assemble  # noqa: F401 - what is imported is there when memory gets short
    from pagedchat.runtime.loading.build import load_model

    most = psutil.Process().memory_info().vms + LITTLE_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    return load_model(EngineConfig(model=ModelConfig(device="cpu")), progress)


def load_on_gpu(config: EngineConfig, progress: Any) -> Any:
    """The model in the box on a GPU, with the same gates before its steps."""
    from pagedchat.runtime.loading.build import load_model

    loaded = load_model(EngineConfig(model=ModelConfig(device="cuda"), cache=CacheConfig(num_blocks=64)), progress)
    orders, execute = Path(config.model.model), loaded.runner.execute

    def pass_gates_and_execute(batch: SchedulerOutput) -> ModelRunnerOutput:
        for phase in _phases(batch):
            pass_gate(orders, phase)
        return execute(batch)

    loaded.runner.execute = pass_gates_and_execute
    return loaded


def _trap_a_kernel() -> None:
    """Let a kernel fail on the GPU: nobody hears of it before the next call, and all calls fail from then on."""
    import torch

    torch.zeros(1, device="cuda")[torch.tensor([5], device="cuda")]


def _compile(orders: Path) -> None:
    """Keep the one kernel, if it is not kept yet; the gate is where it is written and not yet in its place."""
    kernels = KernelCache(orders / "kernels")
    if kernels.get("kernel") is None:
        with _before_it_is_in_place(lambda: pass_gate(orders, "compiling")):
            kernels.put("kernel", CUBIN)


@contextlib.contextmanager
def _before_it_is_in_place(do: Any) -> Iterator[None]:
    replace = os.replace
    os.replace = lambda *paths, **folders: (do(), replace(*paths, **folders))  # type: ignore[assignment]
    try:
        yield
    finally:
        os.replace = replace


def pass_gate(orders: Path, phase: str) -> None:
    """Do what is ordered at this phase, if anything is."""
    try:
        order = (orders / phase).read_text()
        (orders / phase).unlink()
    except FileNotFoundError:
        return
    with (orders / "arrivals").open("w") as arrivals:
        arrivals.write(f"{phase}\n")
    match order:
        case "wait":
            threading.Event().wait()
        case "lose the device":
            raise DeviceError(LOST)
        case "trap a kernel":
            _trap_a_kernel()
        case "run out of memory":
            raise MemoryError
        case "close the connection":
            if (
                not os.fork()
            ):  # whoever reads to the end of the connection ends at once, unless it is stopped before
                os.kill(os.getppid(), signal.SIGSTOP)
                _wait_until_stopped(os.getppid())
                socket.socket(fileno=int(sys.argv[-1])).shutdown(socket.SHUT_WR)
                os._exit(0)
            threading.Event().wait()
        case "fill the disk":
            resource.setrlimit(resource.RLIMIT_FSIZE, (FULL, FULL))
        case _:
            raise AssertionError(order)


def _wait_until_stopped(pid: int) -> None:
    """A signal is on its way for a while; a second at most, where nobody tells."""
    until = time.monotonic() + 1.0
    while psutil.Process(pid).status() != psutil.STATUS_STOPPED and time.monotonic() < until:
        time.sleep(0.005)


class GatedRunner(FakeModelRunner):
    """Gates before each batch, by what it is about. A lost device stays lost."""

    def __init__(self, orders: Path) -> None:
        super().__init__(block_size=BLOCK_SIZE, step_seconds=0.001)
        self._orders = orders
        self._device_error: DeviceError | None = None

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        try:
            for phase in _phases(batch):
                pass_gate(self._orders, phase)
        except DeviceError as error:
            self._device_error = error
            raise
        return super().execute(batch)

    def check(self) -> None:
        if self._device_error is not None:
            raise self._device_error


def _phases(batch: SchedulerOutput) -> Iterator[str]:
    """A batch may be of several."""
    kinds = {op.kind for op in batch.block_ops}
    if "copy" in kinds:
        yield "copy"
    if kinds & {"swap_out", "swap_in"}:
        yield "swap"
    yield "prefill" if any(part.num_tokens > 1 for part in batch.scheduled) else "decode"


# --- in the test ------------------------------------------------------------------------------------


class Gates:
    """Orders for the engines of one folder, and the news that one has come to a gate."""

    def __init__(self, orders: Path) -> None:
        self.orders = orders
        os.mkfifo(orders / "arrivals")
        self._arrivals = os.open(orders / "arrivals", os.O_RDWR | os.O_NONBLOCK)

    def order(self, phase: str, what: str) -> None:
        """The next engine to come to this phase shall do this."""
        written = self.orders / f"{phase}.new"
        written.write_text(what)
        written.rename(self.orders / phase)

    @property
    def has_arrival(self) -> bool:
        """Whether an engine stands at a gate."""
        return bool(select.select([self._arrivals], [], [], 0)[0])

    async def arrival(self) -> str:
        """The phase that an engine has come to."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._arrivals, arrived.set)
        try:
            await arrived.wait()
        finally:
            loop.remove_reader(self._arrivals)
        return os.read(self._arrivals, 100).decode().strip()

    def close(self) -> None:
        os.close(self._arrivals)

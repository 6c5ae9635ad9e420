"""The program in a terminal, brought to where it is to be measured: chats streaming, the inspector open or not."""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import psutil

from pagedchat.bench.ui.script import Script, StepCounter
from pagedchat.bench.ui.terminal import Terminal
from pagedchat.config import Device, QuantizationName
from pagedchat.errors import PagedChatError

F3 = "\x1b[13~"
_COMMAND = (sys.executable, "-P", "-m", "pagedchat.bench.ui.app")
_INSPECTOR = "Pool"
"""In the title of the inspector's first panel, and nowhere else."""
_STREAMING = 10
"""Steps after which the chats are taken to be streaming."""
_PATIENCE = 120.0
"""Seconds, in which a model is loaded, too."""
_SCHEDULED = 2
"""The kind of a process's clock that counts when it has run, in the numbers that `clock_getcpuclockid` makes."""
_PAUSE = 0.15
"""Seconds between two looks at the step count."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment of a run."""

    time: float
    steps: int
    frames: int
    cpu: float
    """Seconds of processor time that the program's own process has had."""


class RunningApp:
    """The program, its terminal and the engine's step count."""

    def __init__(self, terminal: Terminal, counter: StepCounter, go: StepCounter) -> None:
        self.terminal = terminal
        self._counter = counter
        self._go = go
        self._process = psutil.Process(terminal.pid)
        self._clock = ~terminal.pid << 3 | _SCHEDULED if sys.platform == "linux" else None

    def sample(self) -> Sample:
        """The counts now."""
        return Sample(time.perf_counter(), self._counter.value, self.terminal.num_frames, self._processor_seconds())

    def _processor_seconds(self) -> float:
        """By a clock of nanoseconds where there is one: `cpu_times` counts by ten milliseconds, and a few hundred
        steps of a tiny model may take the program less."""
        if self._clock is not None:
            return time.clock_gettime(self._clock)
        cpu = self._process.cpu_times()
        return cpu.user + cpu.system

    def wait_for_steps(self) -> None:
        """Until the chats are streaming.

        Raises:
            PagedChatError: they never do.
        """
        self.read_until(_STREAMING)

    def read_until(self, steps: int, pause: float = _PAUSE) -> None:
        """Read what is drawn until the engine has taken so many steps, which is looked at after each `pause`.

        Raises:
            PagedChatError: it does not get there.
        """
        deadline = time.perf_counter() + _PATIENCE
        while self._counter.value < steps:
            self.terminal.read_for(pause)
            if time.perf_counter() > deadline:
                raise PagedChatError(f"The engine under test took {self._counter.value} steps instead of {steps}.")

    def go(self) -> None:
        """Have a real model run as fast as it can from now on."""
        self._go.add()

    def open_inspector(self) -> None:
        """Beside the chats."""
        self.terminal.press(F3)
        self.terminal.wait_for(_INSPECTOR)


@contextmanager
def running_app(
    num_chats: int,
    num_blocks: int,
    step_seconds: float,
    reply_tokens: int,
    screen: bool = True,
    old_lines: int = 0,
    markdown: bool = False,
    model: str = "",
    device: Device = "cpu",
    quantization: QuantizationName = "auto",
) -> Iterator[RunningApp]:
    """A program of its own, with nothing of it left behind afterwards. See the fields of `Script`."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pagedchat-bench-"))
        script = Script(
            folder=folder,
            num_chats=num_chats,
            num_blocks=num_blocks,
            step_seconds=step_seconds,
            reply_tokens=reply_tokens,
            screen=screen,
            old_lines=old_lines,
            markdown=markdown,
            model=model,
            device=device,
            quantization=quantization,
        )
        counter, go = StepCounter(script.step_count), StepCounter(script.go)
        stack.callback(counter.close)
        stack.callback(go.close)
        yield RunningApp(stack.enter_context(Terminal(_COMMAND, script.environment())), counter, go)

"""What the processes of a UI benchmark agree on, and the one number that passes between them while they run.

The controller starts the program in a terminal, the program starts the engine; each inherits the script, through
the environment.
"""

import mmap
import os
import struct
from pathlib import Path

import msgspec

from pagedchat.config import Device, QuantizationName

_NUMBER = struct.Struct("=Q")

VARIABLE = "PAGEDCHAT_BENCH_SCRIPT"
PROMPT = "Go on with the story."
NUM_PROMPTS = 100
"""Sent to every chat at the start, to be answered one after the other: more than a run gets to."""


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    folder: str
    """For logs and the step count; gone after the run."""
    num_chats: int
    num_blocks: int
    step_seconds: float
    """What the pretended model takes for a step."""
    reply_tokens: int
    """A reply's length: the next prompt goes out when the program has noticed the end."""
    old_lines: int = 0
    """Lines of Markdown that stand in every chat already."""
    markdown: bool = False
    """Whether the reply is Markdown, and drawn so."""
    screen: bool = True
    """False: the engine's events are read and folded into chats, and nothing is drawn."""
    model: str = ""
    """Folder of a model that the engine is to load and run; empty: it recites, and a step is a sleep."""
    device: Device = "cpu"
    """Where that model runs."""
    quantization: QuantizationName = "auto"
    """Of its weights."""

    @property
    def go(self) -> Path:
        """File in which the engine is told, by a first number, to run the model as fast as it can."""
        return Path(self.folder) / "go"

    @property
    def step_count(self) -> Path:
        """File in which the engine counts its steps."""
        return Path(self.folder) / "steps"

    def environment(self) -> dict[str, str]:
        """For the process to be started."""
        return {**os.environ, VARIABLE: msgspec.json.encode(self).decode()}


def inherited_script() -> Script:
    """The script that this process was started with."""
    return msgspec.json.decode(os.environ[VARIABLE], type=Script)


class StepCounter:
    """A number in a file that one process counts up and another reads, without either waiting for the other.

    It is eight bytes of shared memory; the file is made if it is missing.
    """

    def __init__(self, path: Path) -> None:
        with path.open("a+b") as file:
            file.truncate(_NUMBER.size)
            self._memory = mmap.mmap(file.fileno(), _NUMBER.size)

    @property
    def value(self) -> int:
        """The number now."""
        (value,) = _NUMBER.unpack_from(self._memory)
        return int(value)

    def add(self) -> None:
        """One more. Only one process may do so."""
        _NUMBER.pack_into(self._memory, 0, self.value + 1)

    def close(self) -> None:
        """Let go of the file."""
        self._memory.close()

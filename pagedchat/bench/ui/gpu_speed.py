"""What chats and inspector cost an engine that runs a real model, at the speed of the device that it runs on.

All kinds of runs take the same steps: eight chats, say, from some hundred tokens on, in lockstep. Knows no GPU; the
engine process does.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from pagedchat.bench.random_checkpoint import LARGE_STD, write_checkpoint, write_word_tokenizer
from pagedchat.bench.ui.running_app import running_app
from pagedchat.bench.ui.slowdown import SETTLE, Kind, SlowdownResult, take_turns
from pagedchat.config import Device

_SPARE_TOKENS = 2048
"""Of a sequence, beyond the steps that are measured: for the prompt, and until the screen is as it should be."""
_UP_TO_SPEED = 50
"""Steps after which nothing is left of how slow the engine was before."""
_PAUSE = 0.005


def measure_gpu_speed(
    shape: Mapping[str, Any],
    device: Device,
    num_chats: int,
    num_blocks: int,
    rounds: int,
    num_steps: int,
    say: Callable[[str], None],
) -> SlowdownResult:
    """Run every kind `rounds` times for so many steps.

    Args:
        shape: of the model, whose weights are drawn and whose positions are as many as that takes.
        device: where it runs.
        num_chats: chats that are streamed into.
        num_blocks: blocks in the pool.
        rounds: runs of each kind.
        num_steps: of each run.
        say: told of progress.
    """
    with _model(shape, num_steps) as folder:
        run = partial(_run, folder, device, num_chats, num_blocks, num_steps)
        return take_turns(run, num_chats, num_blocks, rounds, say, num_steps=num_steps)


@contextmanager
def _model(shape: Mapping[str, Any], num_steps: int) -> Iterator[str]:
    """A folder with random weights, and with a tokenizer whose tokens are words: there is something to be drawn."""
    with tempfile.TemporaryDirectory(prefix="pagedchat-bench-") as name:
        longer = {**shape, "max_position_embeddings": num_steps + _SPARE_TOKENS}
        write_checkpoint(Path(name), longer, torch.float16, torch.device("cpu"), std=LARGE_STD)
        write_word_tokenizer(Path(name), shape["vocab_size"])
        yield name


def _run(
    model: str, device: Device, num_chats: int, num_blocks: int, num_steps: int, kind: Kind
) -> tuple[float, float]:
    """Steps a second, and the program's share of a core."""
    reply_tokens = num_steps + _SPARE_TOKENS // 2
    screen = kind != "no screen"
    with running_app(num_chats, num_blocks, 0.0, reply_tokens, screen, model=model, device=device) as app:
        app.wait_for_steps()
        if kind == "chats and inspector":
            app.open_inspector()
        app.terminal.read_for(SETTLE)
        app.go()
        app.read_until(app.sample().steps + _UP_TO_SPEED, _PAUSE)
        start = app.sample()
        app.read_until(start.steps + num_steps, _PAUSE)
        end = app.sample()
    wall = end.time - start.time
    return (end.steps - start.steps) / wall, (end.cpu - start.cpu) / wall

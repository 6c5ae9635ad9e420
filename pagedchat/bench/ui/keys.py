"""From a key to its echo on the screen, while chats stream and the inspector is open.

Each key is a letter that occurs nowhere else on the screen, so that its first bytes in what the program writes are
its echo. The time is that of the whole way: terminal, program, terminal.
"""

import random
import time
from dataclasses import dataclass
from statistics import median

from pagedchat.bench.table import percentile
from pagedchat.bench.ui.running_app import RunningApp, Sample, running_app
from pagedchat.config import QuantizationName
from pagedchat.errors import PagedChatError
from pagedchat.view.sentences.glyphs import CORNER

_LETTERS = [chr(code) for code in range(0x410, 0x450)]
"""Cyrillic, one cell each: no other text on the screen has any."""
_LINE = 32
"""Letters typed before the line is emptied again."""
_EMPTY_LINE = "\x15"
_EMPTY_SECONDS = 1.0
"""For the line to be emptied: nothing drawn says so, and a letter typed too soon would go with the rest."""
_SETTLE = 1.0
_FIRST = "\u03a9"
"""As the letters, but none of them: the key that finds out whether keys are heard."""
_PATIENCE = 15.0
"""Seconds for its echo."""
_REPLY_TOKENS = 400
"""Many replies in a run: one without end would measure how an ever longer text is drawn, which nobody watches."""
_PAUSES = 0.05, 0.15
"""Seconds between two keys, by chance between these: no key keeps step with what is drawn by the clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysResult:
    """Milliseconds of `num_keys` keys, and what the program drew meanwhile."""

    num_keys: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    frames_per_second: float
    """Frames that reached the terminal."""
    steps_per_second: float
    cpu_share: float
    """Of one core, by the program's own process."""
    cpu_ms_per_frame: float
    """Processor time for each frame, all that lies between two frames included."""


def measure_keys(
    num_chats: int,
    num_blocks: int,
    rate: int,
    num_keys: int,
    model: str = "",
    quantization: QuantizationName = "auto",
) -> KeysResult:
    """Press `num_keys` keys while each of `num_chats` chats gets `rate` tokens a second, or as many as a model of
    these weights makes on the CPU."""
    with running_app(num_chats, num_blocks, 1 / rate, _REPLY_TOKENS, model=model, quantization=quantization) as app:
        app.terminal.wait_for(CORNER)
        app.wait_for_steps()
        app.go()
        app.open_inspector()
        return press_keys(app, num_keys)


def press_keys(app: RunningApp, num_keys: int) -> KeysResult:
    """Press so many keys in a program that is on the screen."""
    app.terminal.read_for(_SETTLE)
    _press_until_heard(app)
    start = app.sample()
    times = _press_all(app, num_keys)
    return _result(times, start, app.sample())


def _press_until_heard(app: RunningApp) -> None:
    """On a busy machine the inspector may still be taking its place, and a key meets no line to be typed into.

    Raises:
        PagedChatError: no key is heard.
    """
    for last in (False, False, True):
        app.terminal.press(_FIRST)
        try:
            app.terminal.wait_for(_FIRST, _PATIENCE)
            break
        except PagedChatError:
            if last:
                raise
    app.terminal.press(_EMPTY_LINE)
    app.terminal.read_for(_EMPTY_SECONDS)


def _press_all(app: RunningApp, num_keys: int) -> list[float]:
    """Seconds for each key."""
    pauses = random.Random(0)  # noqa: S311 - any pauses will do
    times = []
    for index in range(num_keys):
        if index and not index % _LINE:
            app.terminal.press(_EMPTY_LINE)
            app.terminal.read_for(_EMPTY_SECONDS)
        times.append(_press(app, _LETTERS[index % len(_LETTERS)]))
        app.terminal.read_for(pauses.uniform(*_PAUSES))
    return times


def _press(app: RunningApp, letter: str) -> float:
    pressed = time.perf_counter()
    app.terminal.press(letter)
    return app.terminal.wait_for(letter) - pressed


def _result(times: list[float], start: Sample, end: Sample) -> KeysResult:
    seconds, cpu, frames = end.time - start.time, end.cpu - start.cpu, end.frames - start.frames
    milliseconds = [1000 * value for value in times]
    return KeysResult(
        num_keys=len(times),
        p50_ms=round(median(milliseconds), 2),
        p99_ms=round(percentile(milliseconds, 99), 2),
        max_ms=round(max(milliseconds), 2),
        frames_per_second=round(frames / seconds, 1),
        steps_per_second=round((end.steps - start.steps) / seconds, 1),
        cpu_share=round(cpu / seconds, 3),
        cpu_ms_per_frame=round(1000 * cpu / max(1, frames), 2),
    )

"""The engine in words: what it does while it has no cache to look at, what it said that everybody should read."""

import re
import signal
from typing import NamedTuple

from pagedchat.chat.sanitize import drawable, one_line
from pagedchat.events import EngineDied, EngineNotice, IntegrityBroken, LoadProgress
from pagedchat.units import format_size
from pagedchat.view.engine_view import EngineView
from pagedchat.view.key_names import with_keys


def waiting_words(view: EngineView) -> str:
    """Why there is nothing to inspect."""
    name = f"{view.called}: " if view.called else ""
    return name + _why_nothing(view)


def _why_nothing(view: EngineView) -> str:
    if view.failure is not None:
        return drawable(f"{view.failure.message}\n{view.failure.hint}".rstrip())
    if view.choice is not None:
        return with_keys(f"{one_line(view.choice.server)} has several models; ^L chooses one.")
    if view.loading is not None:
        return f"The engine is loading.\n{one_line(progress_words(view.loading))}"
    return "The engine is starting."


def progress_words(progress: LoadProgress) -> str:
    """`reading weights · 12 of 48 tensors`."""
    return f"{progress.message} · {progress_amount(progress)}" if progress.total else progress.message


def progress_amount(progress: LoadProgress) -> str:
    """`12 of 48 tensors`."""
    if progress.unit == "B":
        return f"{format_size(progress.done)} of {format_size(progress.total)}"
    return f"{progress.done} of {progress.total} {progress.unit}".rstrip()


class News(NamedTuple):
    """A text to be shown for a while."""

    text: str
    bad: bool


class EngineNews:
    """Answers to commands, and that the engine's books disagree: each told once."""

    def __init__(self, view: EngineView) -> None:
        self._view = view
        self._num_told = 0
        self._broken: IntegrityBroken | None = None

    def take(self) -> list[News]:
        """What is new since the last call."""
        news = [_news(notice) for notice in self._new_notices()]
        broken = self._view.broken
        if broken is not None and broken is not self._broken:
            news.append(_broken_news(broken))
        self._broken = broken
        return news

    def _new_notices(self) -> list[EngineNotice]:
        notices, count = self._view.notices, self._view.num_notices - self._num_told
        self._num_told = self._view.num_notices
        return list(notices)[max(0, len(notices) - count) :]


def _news(notice: EngineNotice) -> News:
    return News(drawable(f"{notice.message} {notice.hint}".strip()), notice.failed)


def _broken_news(broken: IntegrityBroken) -> News:
    where = f" All that is known is in {broken.dump}." if broken.dump else ""
    reason = broken.message.rstrip(".")
    return News(drawable(f"The engine's books disagree since step {broken.step}: {reason}.{where}"), True)


def why_it_ended(died: EngineDied) -> str:
    """`SIGSEGV, segmentation fault`, or `exit status 1, ModuleNotFoundError: No module named 'msgspec'`; of one
    that is a sentence for people, that."""
    exit_code = died.exit_code
    if exit_code is None:
        return "no exit status"
    if exit_code < 0:
        return _signal_words(-exit_code)
    error = _last_error(died.log_tail)
    sentence = _OURS.sub("", error)
    return sentence if sentence != error else ", ".join(filter(None, (f"exit status {exit_code}", error)))


def _signal_words(number: int) -> str:
    try:
        words = signal.strsignal(number) or ""
        return ", ".join(filter(None, (signal.Signals(number).name, words.partition(":")[0].lower())))
    except ValueError:  # one without a name
        return f"signal {number}"


def _last_error(log_tail: str) -> str:
    """The last line that a traceback ended with."""
    errors = _ERROR.findall(log_tail)
    return one_line(errors[-1]) if errors else ""


_OURS = re.compile(r"^pagedchat\.errors\.\w+: (?=.)")
_ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Exit)(?:: .*)?$", re.MULTILINE)
"""What Python writes under a traceback."""

"""What the engine is doing, in words, while it has no cache to look at. Pure text."""

from pagedchat.chat.sanitize import one_line, sanitize
from pagedchat.events import LoadProgress
from pagedchat.units import format_size
from pagedchat.view.engine_view import EngineView


def waiting_words(view: EngineView) -> str:
    """Why there is nothing to inspect."""
    if view.failure is not None:
        return sanitize(f"{view.failure.message}\n{view.failure.hint}".rstrip())
    if view.loading is not None:
        return f"The engine is loading.\n{one_line(progress_words(view.loading))}"
    return "The engine is starting."


def progress_words(progress: LoadProgress) -> str:
    """`reading weights · 12 of 48 tensors`."""
    if not progress.total:
        return progress.message
    if progress.unit == "B":
        return f"{progress.message} · {format_size(progress.done)} of {format_size(progress.total)}"
    return f"{progress.message} · {progress.done} of {progress.total} {progress.unit}".rstrip()

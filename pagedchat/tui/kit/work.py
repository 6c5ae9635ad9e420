"""Work that goes on beside the screen."""

from collections.abc import Callable, Coroutine
from typing import Any

from textual.dom import DOMNode
from textual.worker import Worker


def start_work(
    node: DOMNode, work: Callable[[], Coroutine[Any, Any, None]], group: str, *, exit_on_error: bool = True
) -> Worker[None]:
    """Run `work` until it ends, or `node` goes, or the program is left.

    It takes the function and not its coroutine: a worker can be cancelled before its first turn, and Python warns
    about a coroutine that nobody ever awaited, whenever it finds it.

    Args:
        node: what the work belongs to.
        work: an async function without arguments.
        group: whose work it is, for Textual's log.
        exit_on_error: whether an exception in it ends the program.
    """
    return node.run_worker(work, name=group, group=group, exit_on_error=exit_on_error)

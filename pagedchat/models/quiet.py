"""Keep the libraries' own log lines and progress bars away from the terminal while they load."""

import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from typing import Any

_LOGGERS = ("transformers", "huggingface_hub", "tokenizers", "torch")


class CountingBar:
    """Stands in for a `tqdm` bar and reports its count instead of drawing.

    Args:
        report: told of `(done, total)` whenever the count changes.
        iterable: what the bar goes over, if it is one that is iterated.
        total: what the count goes up to; 0 where it is not known.
    """

    def __init__(self, report: Callable[[int, int], None], iterable: Any = None, total: int | None = None) -> None:
        self.n = 0
        self.total = total or (len(iterable) if isinstance(iterable, Sized) else 0)
        self._iterable = iterable
        self._report = report

    def __iter__(self) -> Iterator[Any]:
        for item in self._iterable or ():
            yield item
            self.update()

    def __enter__(self) -> "CountingBar":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_args, **_kwargs: None

    def update(self, n: int = 1) -> None:
        """Count on."""
        self.n += n
        self._report(self.n, self.total)


@contextmanager
def quiet(on_progress: Callable[[int, int], None] = lambda *_: None) -> Iterator[None]:
    """Nothing below an error is logged, no warning shown and no bar drawn inside; all is as before afterwards.

    Args:
        on_progress: told of `(done, total)` by every bar that transformers would have drawn.
    """

    def bar(_factory: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CountingBar:
        return CountingBar(on_progress, args[0] if args else kwargs.get("iterable"), kwargs.get("total"))

    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    previous_bar = _set_bar_hook(bar)
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        _set_bar_hook(previous_bar)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _set_bar_hook(hook: Any) -> Any:
    """Let `hook` make the bars of transformers; returns what made them before. Nothing if it was never imported."""
    transformers = sys.modules.get("transformers")
    return transformers.utils.logging.set_tqdm_hook(hook) if transformers else None

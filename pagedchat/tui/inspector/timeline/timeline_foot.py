"""Under the marks of the batching timeline: figures a column, what marks mean, and one step in words."""

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from pagedchat.step_batch import BatchEntry
from pagedchat.tui.inspector.timeline.timeline_lines import MARK_STYLES, MAX_LABEL, TimelineLines
from pagedchat.tui.kit.line_view import LineBar
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.words import fit, short_label, sparkline
from pagedchat.view.timeline.columns import MARK_MEANINGS, PAUSE, StepColumn
from pagedchat.view.timeline.step_story import batch_words

MAX_SHARES = 32
"""Sequences named in a step's line; more would be out of sight anyway."""

LINES = ("words", "tokens", "free", "seconds", "legend")
"""The lines, the most important one first; as many as there is room for are shown."""
_ORDER = ("tokens", "free", "seconds", "legend", "words")
"""From top to bottom."""


class TimelineFoot(LineBar):
    """Drawn from the columns that the lines above show."""

    DEFAULT_CSS = """
    TimelineFoot {
        & > .timeline-foot--tokens { color: $primary; }
        & > .timeline-foot--free { color: $foreground 60%; }
        & > .timeline-foot--seconds { color: $text-secondary; }
        & > .timeline-foot--plain { color: $foreground; }
        & > .timeline-foot--dim { color: $foreground 50%; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"timeline-foot--{name}" for name in ("tokens", "free", "seconds", "plain", "dim")
    }

    def __init__(self, view: EngineView, lines: TimelineLines) -> None:
        super().__init__(len(LINES))
        self.view = view
        self.lines = lines

    def refresh_view(self, column: StepColumn | None, room: int) -> None:
        """Draw `room` lines at most, and `column` in words."""
        shown = LINES[: max(1, room)]
        makers: dict[str, Callable[[], Strip]] = {
            "tokens": self._tokens,
            "free": self._free,
            "seconds": self._seconds,
            "legend": self._legend,
            "words": partial(self._words, column),
        }
        self.show([makers[name]() for name in _ORDER if name in shown])

    # --- figures ------------------------------------------------------------------------------------

    def _tokens(self) -> Strip:
        return self._spark("tok/step", [column.num_tokens for column in self.lines.columns], "tokens")

    def _free(self) -> Strip:
        mirror = self.view.mirror
        values = [column.num_available for column in self.lines.columns]
        return self._spark("free", values, "free", mirror.num_blocks if mirror else 0)

    def _seconds(self) -> Strip:
        return self._spark("ms/step", [column.seconds for column in self.lines.columns], "seconds")

    def _spark(self, label: str, values: list[int] | list[float], style: str, top: float = 0) -> Strip:
        bars = sparkline(values, top or max(values, default=0), self._ascii)
        head = Segment(fit(label, self.lines.label_width) + " ", self._style("dim"))
        colour = self._style(style)
        return Strip([head, *self.lines.with_cursor(bars, lambda text: iter([Segment(text, colour)]))])

    # --- words --------------------------------------------------------------------------------------

    def _words(self, column: StepColumn | None) -> Strip:
        if column is None:
            return Strip([Segment("no step has run yet", self._style("dim"))])
        if column.report is None:
            return Strip([Segment(f"paused after step {column.step}", self._style("dim"))])
        shares = "".join(f" · {self._share(entry)}" for entry in column.report.batch[:MAX_SHARES])
        words = self.lines.sign(batch_words(column.report))
        return Strip([Segment(words, self._style("plain")), Segment(self.lines.sign(shares), self._style("dim"))])

    def _share(self, entry: BatchEntry) -> str:
        """A sequence's part in the step: `1 tale 1` decoded, `3 of 6` with a draft, `4 notes +90` prefilled."""
        tokens = f"+{entry.num_prefill}" if entry.num_prefill else str(entry.num_decode)
        if entry.num_drafted:
            tokens += f" of {entry.num_drafted + 1}"
        return f"{short_label(self.view.name(entry.seq_id), MAX_LABEL)} {tokens}"

    def _legend(self) -> Strip:
        """The marks that can be seen now."""
        columns = self.lines.columns
        marks = set[str]().union(*[column.marks.values() for column in columns])
        if any(column.paused for column in columns):
            marks.add(PAUSE)
        segments = []
        for mark, meaning in MARK_MEANINGS:
            if mark in marks:
                segments.append(Segment(self.lines.sign(mark), self.lines.mark_style(MARK_STYLES[mark])))
                segments.append(Segment(f" {meaning}  ", self._style("dim")))
        return Strip(segments)

    def _style(self, name: str) -> Style:
        return self.style_of(f"timeline-foot--{name}")

    @property
    def _ascii(self) -> bool:
        return bool(getattr(self.app, "ascii", False))

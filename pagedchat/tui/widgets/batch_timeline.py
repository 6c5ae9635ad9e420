"""The batching panel: a line a sequence, a column a step, and what the last step was made of."""

from collections.abc import Iterator
from itertools import groupby, islice
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.color import Color
from textual.containers import Vertical
from textual.content import Content
from textual.strip import Strip

from pagedchat.engine.mirror import CacheMirror
from pagedchat.events import BatchEntry, StepReport
from pagedchat.tui.engine_view import EngineView
from pagedchat.tui.event_lines import milliseconds, phase_times
from pagedchat.tui.step_columns import (
    DECODE,
    FORK,
    LAST_PREFILL,
    PAUSE,
    PREEMPTED,
    PREFILL,
    RECOMPUTE,
    SWAPPED,
    WAITING,
    StepColumn,
)
from pagedchat.tui.widgets.line_view import LineBar, LineView
from pagedchat.tui.widgets.owner_palette import owner_color, owner_colors, owner_number
from pagedchat.tui.words import fit, short_label, sparkline

MAX_LABEL = 14
MIN_LABEL = 8
"""`tok/step` must fit."""
MAX_SHARES = 32
"""Sequences named in the last step's line; more would be out of sight anyway."""

_MARK_STYLES = {
    PREFILL: "prefill", LAST_PREFILL: "prefill", DECODE: "decode", FORK: "fork", WAITING: "waiting",
    PREEMPTED: "preempted", RECOMPUTE: "recompute", SWAPPED: "swapped", PAUSE: "dim", " ": "dim",
}  # fmt: skip
_LEGEND = (
    (PREFILL, "prefill"), (LAST_PREFILL, "its last part"), (DECODE, "decode"), (FORK, "fork"), (WAITING, "waiting"),
    (PREEMPTED, "preempted"), (RECOMPUTE, "recomputed"), (SWAPPED, "swapped"), (PAUSE, "paused"),
)  # fmt: skip


class TimelineLines(LineView):
    """The marks of every sequence over the last steps that fit."""

    DEFAULT_CSS = """
    TimelineLines {
        scrollbar-gutter: stable;
        & > .timeline-lines--prefill { color: $text-primary; text-style: bold; }
        & > .timeline-lines--decode { color: $text-success; }
        & > .timeline-lines--fork { color: $text-accent; text-style: bold; }
        & > .timeline-lines--waiting { color: $foreground 40%; }
        & > .timeline-lines--preempted { color: $text-error; text-style: bold; }
        & > .timeline-lines--recompute { color: $text-warning; text-style: bold; }
        & > .timeline-lines--swapped { color: $text-secondary; }
        & > .timeline-lines--dim { color: $foreground 50%; }
        & > .timeline-lines--tokens { color: $primary; }
        & > .timeline-lines--free { color: $foreground 60%; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"timeline-lines--{name}"
        for name in (
            "prefill", "decode", "fork", "waiting", "preempted", "recompute", "swapped", "dim", "tokens", "free",
        )
    }  # fmt: skip

    def __init__(self, view: EngineView) -> None:
        super().__init__()
        self.view = view
        self.label_width = MIN_LABEL
        self.columns: list[StepColumn] = []
        """The columns drawn, oldest first."""
        self._sequences: list[tuple[int, str]] = []
        self._colors: list[Color] = []

    def refresh_view(self, mirror: CacheMirror) -> None:
        """Draw everything again: with every step all columns move."""
        names = {seq_id: self.view.name(seq_id) for seq_id in mirror.sequences}
        ordered = sorted(names.items(), key=lambda item: (owner_number(*item), item[0]))
        self._sequences = ordered
        widest = max((cell_len(name) for name in names.values()), default=0)
        self.label_width = min(MAX_LABEL, max(MIN_LABEL, widest))
        room = max(0, self.size.width - self.label_width - 1)
        columns = self.view.columns.columns
        self.columns = list(islice(columns, max(0, len(columns) - room), None))
        self.set_lines(len(ordered))

    def build_line(self, index: int) -> Strip:
        """Label and marks."""
        seq_id, name = self._sequences[index]
        if not self._colors:
            self._colors = owner_colors(self.app.current_theme)
        label = Style.from_color(owner_color(self._colors, owner_number(seq_id, name)).rich_color)
        marks = [PAUSE if column.paused else column.marks.get(seq_id, " ") for column in self.columns]
        return Strip(
            [
                Segment(fit(short_label(name, self.label_width), self.label_width) + " ", label),
                *self._mark_segments(marks),
            ]
        )

    def _mark_segments(self, marks: list[str]) -> Iterator[Segment]:
        for mark, run in groupby(marks):
            yield Segment(mark * sum(1 for _ in run), self.mark_style(_MARK_STYLES[mark]))

    def mark_style(self, name: str) -> Style:
        """One of the component styles."""
        return self.style_of(f"timeline-lines--{name}")

    def notify_style_update(self) -> None:
        """Another theme: other colours."""
        super().notify_style_update()
        self._colors = []


class BatchTimeline(Vertical):
    """Continuous batching as it happens."""

    DEFAULT_CSS = """
    BatchTimeline { height: 1fr; }
    """

    def __init__(self, view: EngineView, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = view
        self.lines = TimelineLines(view)
        self._foot = LineBar(5)
        self._seen: object = None
        self._title = ""

    def compose(self) -> ComposeResult:
        """Marks above; sparklines and the last step below."""
        yield self.lines
        yield self._foot

    def on_mount(self) -> None:
        """Say which keys hold and step the scheduler."""
        self.border_subtitle = "space pause or run · . one step"

    def on_resize(self) -> None:
        """More or fewer columns."""
        self._seen = None
        self.refresh_view()

    def notify_style_update(self) -> None:
        """Another theme: the foot's colours too."""
        super().notify_style_update()
        self._seen = None

    def refresh_view(self) -> None:
        """Follow the engine."""
        mirror, view = self.view.mirror, self.view
        if mirror is None or not self.is_mounted:
            return
        seen = (mirror, mirror.num_reports, view.columns.num_columns, view.paused, dict(view.labels), self.size)
        if seen == self._seen:
            return
        self._seen = seen
        self.lines.refresh_view(mirror)
        self._foot.show([*self._sparklines(mirror), *self._last_step(), self._legend()])
        self._show_title()

    def _show_title(self) -> None:
        state = "‖ paused" if self.view.paused else "▶ live"
        title = f"Batching · a column = a step · {state} at {self.view.step}"
        if title != self._title:
            self._title = title
            self.border_title = Content(title)

    def _sparklines(self, mirror: CacheMirror) -> list[Strip]:
        columns = self.lines.columns
        tokens = [column.num_tokens for column in columns]
        available = [column.num_available for column in columns]
        return [
            self._spark("tok/step", sparkline(tokens, max(tokens, default=0)), "tokens"),
            self._spark("free", sparkline(available, mirror.num_blocks), "free"),
        ]

    def _spark(self, label: str, bars: str, style: str) -> Strip:
        head = Segment(fit(label, self.lines.label_width) + " ", self.lines.mark_style("dim"))
        return Strip([head, Segment(bars, self.lines.mark_style(style))])

    def _last_step(self) -> list[Strip]:
        report = next((report for report in reversed(self.view.history) if report.batch), None)
        dim = self.lines.mark_style("dim")
        if report is None:
            return [Strip([Segment("no step has run yet", dim)]), Strip.blank(0)]
        shares = " · ".join(self._share(entry) for entry in report.batch[:MAX_SHARES])
        return [
            Strip([Segment(batch_words(report)), Segment(f" · {shares}", dim)]),
            Strip([Segment(timing_words(report), dim)]),
        ]

    def _share(self, entry: BatchEntry) -> str:
        """A sequence's part in the step: `1 tale 1` decoded, `4 notes +90` prefilled."""
        tokens = f"+{entry.num_prefill}" if entry.num_prefill else str(entry.num_decode)
        return f"{short_label(self.view.name(entry.seq_id), MAX_LABEL)} {tokens}"

    def _legend(self) -> Strip:
        """The marks that can be seen now."""
        columns = self.lines.columns
        marks = set[str]().union(*[column.marks.values() for column in columns])
        if any(column.paused for column in columns):
            marks.add(PAUSE)
        segments = []
        for mark, meaning in _LEGEND:
            if mark in marks:
                segments.append(Segment(mark, self.lines.mark_style(_MARK_STYLES[mark])))
                segments.append(Segment(f" {meaning}  ", self.lines.mark_style("dim")))
        return Strip(segments)


def batch_words(report: StepReport) -> str:
    """`step 8812 · batch 2 · 2 tok`."""
    tokens = sum(entry.num_prefill + entry.num_decode for entry in report.batch)
    return f"step {report.step} · batch {len(report.batch)} · {tokens} tok"


def timing_words(report: StepReport) -> str:
    """`schedule .2 copy .0 forward 3.1 sample .4 update .1 ms`: where the step's time went."""
    return " ".join(f"{name} {milliseconds(seconds)}" for name, seconds in phase_times(report)) + " ms"

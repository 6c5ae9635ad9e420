"""Where a step's time went: a bar cut into coloured phases, and under it what each colour means and took."""

from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from pagedchat.events import Timings
from pagedchat.tui.kit.line_view import LineBar
from pagedchat.view.sentences.words import milliseconds
from pagedchat.view.timeline.phases import PHASES, Phase, fitting_phases, phase_cells, phase_words, step_phases

_ASCII_LETTERS = dict(zip(PHASES, "sdclfapmu", strict=True))
"""One letter a phase, for the bar of a terminal without block glyphs."""


class PhaseBar(LineBar):
    """Two lines about one step."""

    DEFAULT_CSS = """
    PhaseBar {
        & > .phase-bar--schedule { color: $text-warning; }
        & > .phase-bar--draft { color: $text-primary; }
        & > .phase-bar--copy { color: $text-error; }
        & > .phase-bar--launch { color: $text-secondary; }
        & > .phase-bar--forward, & > .phase-bar--products { color: $primary; }
        & > .phase-bar--attention { color: $text-accent; }
        & > .phase-bar--sample { color: $text-success; }
        & > .phase-bar--update { color: $foreground 50%; }
        & > .phase-bar--words { color: $foreground 60%; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"phase-bar--{name}" for name in (*PHASES, "words")}

    def __init__(self) -> None:
        super().__init__(2)
        self.timings: Timings | None = None
        """What is shown."""

    def show_timings(self, timings: Timings | None) -> None:
        """Show another step's time; None empties the lines."""
        if timings != self.timings:
            self.timings = timings
            self._draw()

    def on_resize(self) -> None:
        """Other lengths."""
        self._draw()

    def notify_style_update(self) -> None:
        """Another theme: other colours."""
        super().notify_style_update()
        self.call_later(self._draw)

    def _draw(self) -> None:
        phases = step_phases(self.timings) if self.timings is not None else []
        self.show([self._bar(phases), self._legend(phases)])

    def _bar(self, phases: list[Phase]) -> Strip:
        total = sum(phase.seconds for phase in phases)
        words = f"{milliseconds(total)} ms " if phases else ""
        cells = phase_cells(phases, self.size.width - cell_len(words))
        plain = getattr(self.app, "ascii", False)
        return Strip(
            [
                Segment(words, self.style_of("phase-bar--words")),
                *[
                    Segment((_ASCII_LETTERS[phase.name] if plain else "█") * width, self._style(phase))
                    for phase, width in zip(phases, cells, strict=True)
                    if width
                ],
            ]
        )

    def _legend(self, phases: list[Phase]) -> Strip:
        plain = getattr(self.app, "ascii", False)
        words = self.style_of("phase-bar--words")
        segments = []
        for phase in fitting_phases(phases, self.size.width):
            segments.append(Segment(_ASCII_LETTERS[phase.name] if plain else "■", self._style(phase)))
            segments.append(Segment(f" {phase_words(phase)}  ", words))
        return Strip(segments)

    def _style(self, phase: Phase) -> Style:
        return self.style_of(f"phase-bar--{phase.name}")

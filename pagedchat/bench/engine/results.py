"""All figures of one run on a GPU, and how they go into a file. Knows no measuring."""

from dataclasses import asdict, dataclass, field
from typing import Any

from pagedchat.bench.engine.beams import BeamFigure
from pagedchat.bench.engine.measure_shapes import ShapeFigures
from pagedchat.bench.engine.measures import Figure
from pagedchat.bench.engine.same_tokens import SameTokens
from pagedchat.bench.engine.start import StartFigure
from pagedchat.bench.engine.stored import stored_peers
from pagedchat.bench.engine.stutter import StutterFigure
from pagedchat.bench.table import environment


@dataclass(slots=True, kw_only=True)
class Results:
    """What was measured; empty what was not asked for."""

    gpu: str
    """As the driver calls it."""
    repeats: int
    copy_gb_s: float | None = None
    """Of a large copy, bytes read and written."""
    speed: list[Figure] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """What of the peers could not be run, and why."""
    client: list[Figure] = field(default_factory=list)
    """Of ids in one process, and of text at the client."""
    start: list[StartFigure] = field(default_factory=list)
    stutter: list[StutterFigure] = field(default_factory=list)
    shapes: list[ShapeFigures] = field(default_factory=list)
    beams: list[BeamFigure] = field(default_factory=list)
    same: list[SameTokens] = field(default_factory=list)

    @property
    def all_same(self) -> bool:
        """Whether all replies were the same that have to be."""
        return all(same.all_same for same in self.same)

    def as_json(self) -> dict[str, Any]:
        """With the machine, the medians and what the peers reached at another time."""
        values = asdict(self)
        for figure, value in zip(self.speed + self.client, values["speed"] + values["client"], strict=True):
            value["median"] = figure.value
        return {"environment": environment(), **values, "stored_peers": asdict(stored_peers())}

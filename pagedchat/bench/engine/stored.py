"""Figures of the peers kept from other runs: always marked as such, never taken for measured."""

import json
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from pagedchat.bench.engine.workloads import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredStart:
    """How one peer starts."""

    imports_s: float
    """From process start to imports done."""
    ready_s: float
    """From process start to the engine being ready."""
    first_request_ms: float
    """Of the first request, one token, after that."""

    @property
    def first_token_s(self) -> float:
        """From process start to the first token."""
        return self.ready_s + self.first_request_ms / 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPeers:
    """What the peers reached, and where and how that was measured."""

    gpu: str
    measured: str
    versions: dict[str, str]
    conditions: dict[str, str]
    """In words, by peer."""
    figures: dict[str, dict[str, float]]
    """By key of `workloads.ROWS` and peer, in the row's unit."""
    shapes: dict[str, dict[str, dict[str, float]]]
    """Likewise of `workloads.SHAPE_ROWS`, by name of the shape."""
    start: dict[str, StoredStart]

    def on(self, gpu: str) -> "StoredPeers":
        """These figures on the GPU they were taken on, none on another one: there they say nothing."""
        return self if gpu == self.gpu else replace(self, figures={}, shapes={}, start={})

    def of_shape(self, name: str) -> "StoredPeers":
        """The figures of another shape in place of these."""
        return replace(self, figures=self.shapes.get(name, {}))

    def best(self, row: Row) -> tuple[str, float] | None:
        """The best peer of a row and its figure; None where nothing is stored."""
        found = self.figures.get(row.key)
        if not found:
            return None
        choose = min if row.unit == "ms" else max
        name = choose(found, key=lambda peer: found[peer])
        return name, found[name]

    @property
    def source(self) -> str:
        """Machine, date and versions in one line."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return f"one {self.gpu}, {self.measured}: {versions}"


@cache
def stored_peers() -> StoredPeers:
    """Read the file beside this module."""
    found = json.loads(files(__package__).joinpath("stored_peers.json").read_text(encoding="utf-8"))
    start = {peer: StoredStart(**values) for peer, values in found["start"].items()}
    names = ("gpu", "measured", "versions", "conditions", "figures", "shapes")
    return StoredPeers(start=start, **{name: found[name] for name in names})

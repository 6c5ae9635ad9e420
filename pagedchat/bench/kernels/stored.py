"""Figures of the peers kept from another run: always marked as such, never taken for measured."""

import json
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPeers:
    """Microseconds a call of each peer, by section and shape, and where they come from."""

    gpu: str
    measured: str
    versions: dict[str, str]
    us: dict[str, dict[str, dict[str, float]]]

    def on(self, gpu: str) -> "StoredPeers":
        """These figures on the GPU they were taken on, none on another one: there they say nothing."""
        return self if gpu == self.gpu else replace(self, us={})

    def at(self, section: str, shape: str) -> dict[str, float]:
        """Microseconds by the name of the peer; empty where nothing is stored."""
        return self.us.get(section, {}).get(shape, {})

    @property
    def source(self) -> str:
        """Machine, date and versions in one line."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return f"one {self.gpu}, {self.measured}: {versions}"


@cache
def stored_peers() -> StoredPeers:
    """Read the file beside this module."""
    found = json.loads(files(__package__).joinpath("stored_peers.json").read_text(encoding="utf-8"))
    return StoredPeers(gpu=found["gpu"], measured=found["measured"], versions=found["versions"], us=found["us"])

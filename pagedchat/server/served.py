"""The engine as it is offered to clients: under which name, to how many, within which bounds. One value, that every
endpoint is handed."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pagedchat.events import EngineReady
from pagedchat.server.admission import Admission
from pagedchat.server.engine import Engine, EngineState
from pagedchat.server.replies.tool_formats import ToolFormat
from pagedchat.server.thought_finder import ThoughtFinder

MIB = 1024**2


async def nothing_told() -> dict[str, Any]:
    """There are no figures."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What endpoints work with."""

    engine: Engine
    state: EngineState
    admission: Admission
    names: tuple[str, ...]
    """By which a request may ask for the model; replies have the first."""
    metrics: Callable[[], bytes] = field(default=lambda: b"")
    """All figures as Prometheus reads them."""
    stats: Callable[[], Awaitable[dict[str, Any]]] = nothing_told
    """The same for people, and who uses the engine: see `ServerStats`."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """`SamplingParams` fields of requests that do not say them, over the model's own."""
    tool_format: ToolFormat = "auto"
    thoughts: bool = True
    """Whether thoughts are told apart from replies."""
    max_body: int = 16 * MIB
    """Bytes."""

    created: int = field(default_factory=lambda: int(time.time()))
    """When this began, in seconds."""
    thought_finder: ThoughtFinder = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "thought_finder", ThoughtFinder(self.engine))

    @property
    def name(self) -> str:
        """Of the model."""
        return self.names[0]

    @property
    def info(self) -> EngineReady:
        """Of the engine that takes requests; whoever asks has checked that there is one."""
        info = self.state.info or self.state.known
        if info is None:
            raise RuntimeError("There has been no engine yet.")
        return info

    @property
    def sampling_defaults(self) -> dict[str, Any]:
        """`SamplingParams` fields of requests that do not say them."""
        return {**self.info.sampling_defaults, **self.defaults}

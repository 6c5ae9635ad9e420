"""The engine of a server, from a config to what endpoints work with: the one place where its link is put together.

The link itself is heard by `observe`, whatever stands between it and those who use it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from pagedchat.api.async_llm import AsyncLLM
from pagedchat.config import EngineConfig
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.events import EngineEvent
from pagedchat.metrics.exposition import Exposition
from pagedchat.metrics.observed import ObservedLink
from pagedchat.server.admission import Admission
from pagedchat.server.attach import AttachServer
from pagedchat.server.engine import EngineState
from pagedchat.server.http.coming import Coming
from pagedchat.server.hub import EngineHub
from pagedchat.server.measured import MeasuredEngine
from pagedchat.server.options import ServeOptions
from pagedchat.server.replies.tool_formats import ToolFormat
from pagedchat.server.served import Served
from pagedchat.server.stats import ServerStats
from pagedchat.server.steps_behind import StepsBehind
from pagedchat.service.client import EngineClient
from pagedchat.service.commands import EngineLink


@dataclass(frozen=True, slots=True)
class OpenedEngine:
    """An engine that is to be started."""

    llm: AsyncLLM
    """Over which requests go; it is one of the hub's clients."""
    served: Served
    hub: EngineHub
    """By which terminals share the engine."""
    attach: AttachServer
    """Where they come in."""
    stats: ServerStats
    """What `pagedchat stats` is told."""
    coming: Coming
    """To be told of requests as they are read: an engine at rest waits for them."""

    async def close(self) -> None:
        """End the engine, and all that is on it."""
        self.attach.close()
        await self.llm.close()
        await self.hub.close()


def open_engine(
    config: EngineConfig,
    options: ServeOptions,
    overrides: SamplingOverrides,
    observe: Callable[[EngineEvent], None],
    link: EngineLink | None = None,
) -> OpenedEngine:
    """Put everything together; `llm.start` starts it.

    Args:
        config: what the engine is to load.
        options: how it is offered.
        overrides: over the model's own wishes, for requests that say nothing.
        observe: hears every event of the engine.
        link: an engine in the stead of a process of its own.
    """
    state, exposition = EngineState(), Exposition()

    def heard(event: EngineEvent) -> None:
        state.fold(event)
        exposition.fold(event)
        observe(event)

    coming = Coming()
    observed = ObservedLink(StepsBehind(link or EngineClient(config, coming=coming)), heard)
    hub = EngineHub(observed)
    llm = AsyncLLM(link=hub.client("program", follows_steps=False))
    attach = AttachServer(hub, keep_seconds=options.keep_detached)
    admission = Admission(config.scheduler.max_num_seqs + options.max_queued)
    stats = ServerStats(config.model.model, state, exposition.figures, hub, attach, admission)
    served = Served(
        engine=MeasuredEngine(llm, exposition.fold),
        state=state,
        admission=admission,
        names=options.names or (config.model.model,),
        metrics=exposition.text,
        stats=stats,
        defaults=overrides.set_values(),
        tool_format=cast(ToolFormat, options.tool_format),
        thoughts=options.thoughts,
        max_body=options.max_body,
    )
    return OpenedEngine(llm, served, hub, attach, stats, coming)

"""An engine link for screen tests: it records commands and says what a test tells it to say."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from pagedchat.cache_events import BlockAllocated, CacheEvent, SequenceExtended, SequenceOpened, SequenceScheduled
from pagedchat.events import (
    Counters,
    EngineEvent,
    EngineReady,
    PoolCounts,
    QueueLengths,
    RequestFinished,
    RequestStarted,
    StepReport,
    Steps,
    TextDelta,
    Timings,
)
from pagedchat.service.commands import AnyCommand, Generate
from pagedchat.step_batch import BatchEntry

READY = EngineReady(
    model="facebook/opt-125m",
    architecture="OPTForCausalLM",
    num_parameters=125_239_296,
    dtype="float16",
    device="cuda:0",
    num_layers=12,
    num_kv_heads=12,
    head_dim=64,
    vocab_size=50272,
    max_model_len=2048,
    block_size=16,
    num_blocks=256,
    num_host_blocks=0,
    block_bytes=589_824,
    chat_template="plain",
    sampling_defaults={"temperature": 0.8},
    load_seconds=1.5,
)


class FakeEngineLink:
    """An `EngineLink` whose engine is the test."""

    def __init__(self) -> None:
        self.sent: list[AnyCommand] = []
        self.started = False
        self.num_restarts = 0
        self.switched_to: list[str] = []
        self.closed = False
        self.others: list[tuple[str, FakeEngineLink]] = []
        self._events: asyncio.Queue[EngineEvent | None] = asyncio.Queue()

    async def start(self) -> None:
        self.started = True

    async def restart(self) -> None:
        self.num_restarts += 1

    async def switch(self, model: str) -> None:
        self.switched_to.append(model)

    def beside(self, model: str) -> "FakeEngineLink":
        """Another engine that is the test, kept by the one that was asked."""
        link = FakeEngineLink()
        self.others.append((model, link))
        return link

    def send(self, command: AnyCommand) -> None:
        self.sent.append(command)

    async def events(self) -> AsyncIterator[EngineEvent]:
        while (event := await self._events.get()) is not None:
            yield event
            self._events.task_done()

    async def close(self) -> None:
        self.closed = True
        self._events.put_nowait(None)

    # --- what the test says -------------------------------------------------------------------------

    async def heard(self) -> None:
        """Wait until all that was said has been taken in, where somebody listens; a busy machine takes its time."""
        if self.started and not self.closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await self._events.join()

    def say(self, *events: EngineEvent) -> None:
        for event in events:
            self._events.put_nowait(event)

    def generates(self) -> list[Generate]:
        return [command for command in self.sent if isinstance(command, Generate)]

    def reply(self, generate: Generate, text: str, *, finish: bool = True) -> None:
        """Answer a request: it starts, writes `text`, and ends unless told otherwise."""
        ids = generate.session_id, generate.request_id
        self.say(RequestStarted(*ids, 10, 0), TextDelta(*ids, text, len(text.split())))
        if finish:
            self.say(finished(generate, len(text.split())))


def finished(generate: Generate, num_tokens: int = 5, reason: str = "stop") -> RequestFinished:
    return RequestFinished(generate.session_id, generate.request_id, reason, 10, 4, num_tokens, 0.05, 0.5)


def report(step: int, events: list[CacheEvent], in_use: int = 0, table_entries: int = 0, shared: int = 0) -> Steps:
    """A step's report with the given cache events, as `Steps`."""
    pool = PoolCounts(256, 256 - in_use, 0, in_use, shared, table_entries or in_use, 0, 0)
    batch = [BatchEntry(event.seq_id, 10, 0, [7]) for event in events if isinstance(event, SequenceExtended)]
    counters = Counters(steps=step)
    return Steps(
        [
            StepReport(
                step, step / 100, batch, events, pool, QueueLengths(0, 1, 0, 0), Timings(forward=0.5), counters
            )
        ]
    )


def prefill(seq_id: int, first_block: int, num_blocks: int, step: int = 1) -> Steps:
    """A sequence of `num_blocks` blocks is opened and prefilled; those before `first_block` are in use already."""
    tokens = list(range(num_blocks * 16 - 5))
    allocated = [BlockAllocated(seq_id, first_block + index) for index in range(num_blocks)]
    events: list[CacheEvent] = [
        SequenceOpened(seq_id),
        SequenceExtended(seq_id, tokens, 0),
        SequenceScheduled(seq_id),
        *allocated,
    ]
    return report(step, events, in_use=first_block + num_blocks)

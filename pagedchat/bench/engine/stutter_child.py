"""What stutter is measured on: `stutter_child {api,process} FOLDER DEVICE DTYPE SECONDS`, run as a module.

Chats join one after another, each with another kind of sampling; who has a reply asks again, with prompts and so
contexts of several lengths. "api" steps an `LLMEngine`; "process" asks an engine process, as the terminal does, and
takes the times from its reports of steps: text comes at the rate at which a screen draws. What held steps up is in
the engine's log. Prints one JSON object.
"""

import asyncio
import itertools
import json
import logging
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pagedchat.bench.engine.gaps import Gaps
from pagedchat.chat.turns import Turn
from pagedchat.config import EngineConfig, ModelConfig
from pagedchat.engine.sampling_params import RequestOutputKind, SamplingOverrides, SamplingParams
from pagedchat.errors import PagedChatError
from pagedchat.events import EngineFailed, EngineReady, RequestFailed, RequestFinished, StepReport, Steps

if TYPE_CHECKING:
    from pagedchat.service.client import EngineClient

Notes = list[tuple[float, str]]
"""When, by the clock of the gaps, and what held a step up."""
KINDS = (
    SamplingOverrides(temperature=0),
    SamplingOverrides(temperature=0.8, seed=1),
    SamplingOverrides(temperature=0.7, top_p=0.9, presence_penalty=0.5, repetition_penalty=1.1, seed=2),
    SamplingOverrides(temperature=1.0, top_k=40, min_p=0.05, seed=3),
)
"""How the chats draw their tokens, in the order in which they join."""
PROMPT_LENGTHS = (40, 300, 120, 900)
NEW_TOKENS = 400
JOIN_SECONDS = 0.5
"""From one chat to the next."""
SLOW_SECONDS = 0.005
"""What a step takes from which on it is noted where its time went."""
_NOTED = re.compile(r"Step (\d+): (.+)\.$", re.MULTILINE)
"""What `graphs.captured_runner` says of a step at the level for debugging."""


def main() -> None:
    """Run the chats, print the gaps."""
    way, folder, device, dtype, seconds = sys.argv[1:]
    model = msgspec.convert({"model": folder, "device": device, "dtype": dtype}, ModelConfig)
    config, gaps = EngineConfig(model=model), Gaps()
    notes = (
        through_api(config, float(seconds), gaps) if way == "api" else through_process(config, float(seconds), gaps)
    )
    print(json.dumps({"worst": gaps.worst, "meanwhile": gaps.meanwhile(notes), "num_tokens": gaps.num_tokens}))


class _Noting(logging.Handler):
    """Keeps what is said of steps, and when."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.notes: Notes = []

    def emit(self, record: logging.LogRecord) -> None:
        if found := _NOTED.search(record.getMessage()):
            self.notes.append((time.perf_counter(), found[2]))


@contextmanager
def _noted() -> Iterator[Notes]:
    """What is said of steps that are held up while this is entered, which grows."""
    said, noting = logging.getLogger("pagedchat.runtime.graphs"), _Noting()
    level = said.level
    said.addHandler(noting)
    said.setLevel(logging.DEBUG)
    try:
        yield noting.notes
    finally:
        said.setLevel(level)
        said.removeHandler(noting)


def through_api(config: EngineConfig, seconds: float, gaps: Gaps) -> Notes:
    """Chats on an `LLMEngine`; who has a reply asks again for so many seconds.

    Returns:
        What held steps up.
    """
    from pagedchat import LLMEngine  # noqa: PLC0415 - a terminal does not import it

    with _noted() as notes, LLMEngine(config) as engine:
        prompts, began = _prompts(engine.info.max_model_len), time.perf_counter()
        joining = _joining(lambda: time.perf_counter() - began)

        def ask(chat: int) -> None:
            gaps.begin(chat)
            prompt: Any = {"prompt_token_ids": [token % engine.info.vocab_size for token in next(prompts)]}
            params = _overrides(chat).resolve(SamplingParams())
            engine.add_request(str(chat), prompt, params, output_kind=RequestOutputKind.DELTA)

        ask(next(joining))
        while engine.has_unfinished_requests():
            for output in engine.step():
                now = time.perf_counter()
                for _ in output.outputs[0].token_ids:
                    gaps.token(int(output.request_id), now)
                if output.finished and now - began < seconds:
                    ask(int(output.request_id))
            chat = next(joining)
            if chat >= 0:
                ask(chat)
    return notes


def through_process(config: EngineConfig, seconds: float, gaps: Gaps) -> Notes:
    """The same of an engine process."""
    os.environ["PAGEDCHAT_LOG"] = "debug"
    with tempfile.TemporaryDirectory(prefix="pagedchat-bench-") as logs:
        reports = asyncio.run(_ask_process(config, Path(logs), seconds, gaps))
        text = "".join(path.read_text(errors="replace") for path in Path(logs).glob("*.log"))
    return notes_of(text, reports)


async def _ask_process(config: EngineConfig, logs: Path, seconds: float, gaps: Gaps) -> dict[int, StepReport]:
    from pagedchat.service.client import EngineClient  # noqa: PLC0415 - a script does not import it

    client = EngineClient(config, logs)
    await client.start()
    try:
        return await _listen(client, seconds, gaps)
    finally:
        await client.close()


def notes_of(log: str, reports: dict[int, StepReport]) -> Notes:
    """What an engine's log says of steps, and where the time of slow ones went, by the engine's clock.

    Args:
        log: its text.
        reports: of the steps, by number.
    """
    found = [(reports[int(step)].time, what) for step, what in _NOTED.findall(log) if int(step) in reports]
    slow = [report for report in reports.values() if report.timings.total > SLOW_SECONDS]
    return [*found, *((report.time, _parts(report)) for report in slow)]


def _parts(report: StepReport) -> str:
    took = report.timings
    parts = {
        name: 1e3 * getattr(took, name) for name in ("schedule", "copy", "launch", "forward", "sample", "update")
    }
    words = ", ".join(f"{name} {ms:.1f}" for name, ms in parts.items() if ms >= 0.1)
    return f"a step of {len(report.batch)} took {1e3 * took.total:.1f} ms ({words})"


async def _listen(client: "EngineClient", seconds: float, gaps: Gaps) -> dict[int, StepReport]:
    """Until all replies are there; gives the reports of steps by number."""
    from pagedchat.service.commands import Generate  # noqa: PLC0415

    prompts, request_ids, began = _prompts(0), itertools.count(1), float("inf")
    joining = _joining(lambda: time.perf_counter() - began)
    running: set[int] = set()
    reports: dict[int, StepReport] = {}

    def ask(chat: int) -> None:
        running.add(chat)
        text = bytes(32 + token % 90 for token in next(prompts)).decode()
        turns = [Turn("user", text)]
        client.send(Generate(chat + 1, next(request_ids), turns, _overrides(chat), raw=True))

    async for event in client.events():
        match event:
            case EngineReady():
                prompts, began = _prompts(event.max_model_len), time.perf_counter()
                ask(next(joining))
            case Steps(some):
                for report in some:
                    reports[report.step] = report
                    _take(report, gaps)
            case RequestFinished():
                running.discard(event.session_id - 1)
                if time.perf_counter() - began < seconds:
                    ask(event.session_id - 1)
                elif not running:
                    return reports
            case EngineFailed() | RequestFailed():
                raise PagedChatError(event.message, event.hint)
        if began < float("inf") and (chat := next(joining)) >= 0:
            ask(chat)
    return reports


def _take(report: StepReport, gaps: Gaps) -> None:
    """Tokens of one step, by the engine's clock."""
    for entry in report.batch:
        if entry.num_prefill:
            gaps.begin(entry.seq_id)
        for _ in entry.token_ids:
            gaps.token(entry.seq_id, report.time)


def _joining(since: Callable[[], float]) -> Iterator[int]:
    """The next chat, whenever it is its turn by the seconds gone by; -1 while it is nobody's."""
    for chat in range(len(KINDS)):
        while chat and since() < chat * JOIN_SECONDS:
            yield -1
        yield chat
    while True:
        yield -1


def _prompts(model_len: int) -> Iterator[list[int]]:
    """One after another of changing lengths that leave room for a reply, all of them new; numbers from 4 on."""
    source = random.Random(0)  # noqa: S311 - any tokens will do
    for length in itertools.cycle(PROMPT_LENGTHS):
        yield source.choices(range(4, 300), k=max(1, min(length, model_len - NEW_TOKENS)))


def _overrides(chat: int) -> SamplingOverrides:
    """With as many tokens as are wanted, whatever the model would end with."""
    return msgspec.structs.replace(KINDS[chat], max_tokens=NEW_TOKENS, ignore_eos=True)


if __name__ == "__main__":
    main()

"""What stutter is measured on: `stutter_child {api,process} FOLDER DEVICE DTYPE SECONDS`, run as a module.

Chats join one after another, each with another kind of sampling; who has a reply asks again, with prompts and so
contexts of several lengths. "api" steps an `LLMEngine`; "process" asks an engine process, as the terminal does, and
takes the times from its reports of steps: text comes at the rate at which a screen draws. Prints one JSON object.
"""

import asyncio
import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pagedchat.bench.engine.gaps import Gaps
from pagedchat.chat.session import Turn
from pagedchat.config import EngineConfig, ModelConfig
from pagedchat.engine.sampling_params import RequestOutputKind, SamplingOverrides, SamplingParams
from pagedchat.errors import PagedChatError
from pagedchat.events import EngineFailed, EngineReady, RequestFailed, RequestFinished, StepReport, Steps

if TYPE_CHECKING:
    from pagedchat.service.client import EngineClient

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


def main() -> None:
    """Run the chats, print the gaps."""
    way, folder, device, dtype, seconds = sys.argv[1:]
    model = msgspec.convert({"model": folder, "device": device, "dtype": dtype}, ModelConfig)
    config, gaps = EngineConfig(model=model), Gaps()
    if way == "api":
        through_api(config, float(seconds), gaps)
    else:
        asyncio.run(_through_process(config, float(seconds), gaps))
    print(json.dumps({"worst": gaps.worst, "num_tokens": gaps.num_tokens}))


def through_api(config: EngineConfig, seconds: float, gaps: Gaps) -> None:
    """Chats on an `LLMEngine`; who has a reply asks again for so many seconds."""
    from pagedchat import LLMEngine  # noqa: PLC0415 - a terminal does not import it

    with LLMEngine(config) as engine:
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


async def _through_process(config: EngineConfig, seconds: float, gaps: Gaps) -> None:
    from pagedchat.service.client import EngineClient  # noqa: PLC0415 - a script does not import it

    with tempfile.TemporaryDirectory(prefix="pagedchat-bench-") as logs:
        client = EngineClient(config, Path(logs))
        await client.start()
        try:
            await _listen(client, seconds, gaps)
        finally:
            await client.close()


async def _listen(client: "EngineClient", seconds: float, gaps: Gaps) -> None:
    from pagedchat.service.commands import Generate  # noqa: PLC0415

    prompts, request_ids, began = _prompts(0), itertools.count(1), float("inf")
    joining = _joining(lambda: time.perf_counter() - began)
    running: set[int] = set()

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
            case Steps(reports):
                for report in reports:
                    _take(report, gaps)
            case RequestFinished():
                running.discard(event.session_id - 1)
                if time.perf_counter() - began < seconds:
                    ask(event.session_id - 1)
                elif not running:
                    return
            case EngineFailed() | RequestFailed():
                raise PagedChatError(event.message, event.hint)
        if began < float("inf") and (chat := next(joining)) >= 0:
            ask(chat)


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

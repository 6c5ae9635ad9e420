"""What a start is measured on: `python -m pagedchat.bench.engine.start_child {api,process} FOLDER`.

"api" is a script that makes an `LLM` and asks it for one token; "process" asks an engine process, as the terminal
does. Prints one JSON object with readings of the system-wide monotonic clock, so that whoever started this process
knows how long each took. Imports only what such a program would.
"""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pagedchat.chat.turns import Turn
from pagedchat.config import EngineConfig, ModelConfig
from pagedchat.engine.sampling_params import SamplingOverrides, SamplingParams
from pagedchat.errors import PagedChatError
from pagedchat.events import EngineFailed, EngineReady, LoadProgress, RequestFailed, RequestFinished

if TYPE_CHECKING:
    from pagedchat.service.client import EngineClient

_PROMPT = "The sea is calm tonight. The tide"
"""32 tokens, more or less: with the tokenizer of a random checkpoint each byte is one."""


class Stamps:
    """When what was done, by `time.monotonic`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def loading(self, progress: LoadProgress) -> None:
        """The first thing told after the imports began says that they are over."""
        if progress.stage != "import":
            self.mark("imports")

    def mark(self, what: str) -> None:
        """It is done, unless it was before."""
        self.seconds.setdefault(what, time.monotonic())


def main() -> None:
    """Start, ask for a token, print the stamps."""
    way, folder = sys.argv[1:]
    stamps = Stamps()
    config = EngineConfig(model=ModelConfig(model=folder, device="cuda"))
    if way == "api":
        _through_api(config, stamps)
    else:
        asyncio.run(_through_process(config, stamps))
    print(json.dumps(stamps.seconds))


def _through_api(config: EngineConfig, stamps: Stamps) -> None:
    from pagedchat import LLM  # noqa: PLC0415 - a terminal does not import it

    llm = LLM.from_config(config, stamps.loading)
    stamps.mark("ready")
    llm.generate(_PROMPT, SamplingParams(temperature=0, max_tokens=1))
    stamps.mark("first")


async def _through_process(config: EngineConfig, stamps: Stamps) -> None:
    from pagedchat.service.client import EngineClient  # noqa: PLC0415 - nor does a script import this
    from pagedchat.service.commands import Generate  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="pagedchat-bench-") as logs:
        client = EngineClient(config, Path(logs))
        await client.start()
        overrides = SamplingOverrides(temperature=0, max_tokens=1)
        client.send(Generate(1, 1, [Turn("user", _PROMPT)], overrides, raw=True))
        try:
            await _listen(client, stamps)
        finally:
            await client.close()


async def _listen(client: "EngineClient", stamps: Stamps) -> None:
    async for event in client.events():
        match event:
            case LoadProgress():
                stamps.loading(event)
            case EngineReady():
                stamps.mark("ready")
            case RequestFinished():
                stamps.mark("first")
                return
            case EngineFailed() | RequestFailed():
                raise PagedChatError(event.message, event.hint)


if __name__ == "__main__":
    main()

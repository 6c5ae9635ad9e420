"""`python -m pagedchat.bench.ui.app`: the program that users run, on the engine that recites or on a real model.

Started in a pseudo-terminal by the benchmark. Nothing in it is measured from inside.
"""

import asyncio
import sys
from pathlib import Path

from pagedchat.bench.ui.real_engine import REAL_LOADER
from pagedchat.bench.ui.script import NUM_PROMPTS, PROMPT, Script, inherited_script
from pagedchat.bench.ui.scripted_engine import LOADER
from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.config import CacheConfig, EngineConfig, ModelConfig
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.service.client import EngineClient
from pagedchat.service.process import DEFAULT_ENTRY
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.options import MarkdownChoice, UiOptions


def main() -> int:
    """Run until the terminal goes, or the process is ended."""
    script = inherited_script()
    loader = REAL_LOADER if script.model else LOADER
    client = EngineClient(_config(script), Path(script.folder), [*DEFAULT_ENTRY, "--loader", loader])
    overrides = SamplingOverrides(
        max_tokens=script.reply_tokens, temperature=0.0, repetition_penalty=1.0, ignore_eos=True
    )
    name = "random weights" if script.model else "recited"
    markdown: MarkdownChoice = "on" if script.markdown else "auto"
    options = UiOptions(model=name, sessions=script.num_chats, overrides=overrides, markdown=markdown)
    if not script.screen:
        asyncio.run(_run_without_screen(client, options, script))
        return 0
    from pagedchat.bench.ui.streaming_app import StreamingApp  # noqa: PLC0415 - loads Textual

    StreamingApp(client, options, PromptHistory(), script.old_lines).run()
    return 0


def _config(script: Script) -> EngineConfig:
    if not script.model:
        return EngineConfig()
    model = ModelConfig(model=script.model, device=script.device, quantization=script.quantization)
    return EngineConfig(model=model, cache=CacheConfig(num_blocks=script.num_blocks, swap_space=0))


async def _run_without_screen(client: EngineClient, options: UiOptions, script: Script) -> None:
    """The least that a listener can do: it reads every event and sends the next prompt when a reply ends."""
    desk = ChatDesk(client.send, options)
    for _ in range(script.num_chats):
        desk.new()
    for _ in range(NUM_PROMPTS):
        for chat in desk.chats:
            desk.submit(chat, PROMPT)
    await client.start()
    async for event in client.events():
        desk.apply(event)


if __name__ == "__main__":
    sys.exit(main())

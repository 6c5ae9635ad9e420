"""`vllm.v1.engine.async_llm`."""

import asyncio
from typing import Self

from pagedchat.api import async_llm
from pagedchat.service.client import EngineClient
from pagedchat.vllm.engine.arg_utils import EngineArgs


class AsyncLLM(async_llm.AsyncLLM):
    """As vLLM's users make and end it."""

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs) -> Self:
        """The engine that is asked for; it starts with the first request.

        Raises:
            InvalidValueError: as for `AsyncLLM()`.
        """
        return cls(link=EngineClient(engine_args.create_engine_config(), follows_steps=False))

    def shutdown(self) -> "asyncio.Task[None]":  # type: ignore[override]  # may be awaited as well
        """End the engine and all requests; need not be awaited, if the loop runs on for a while."""
        return asyncio.ensure_future(self.close())

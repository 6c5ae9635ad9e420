"""One conversation asked of the engine, for chats and responses alike: outputs as they come, and a parser for each
reply."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.server.http.endpoints.common import Tally
from pagedchat.server.http.tools import Offered
from pagedchat.server.replies.reply_parser import ReplyParser
from pagedchat.server.replies.thoughts import ThoughtSplitter
from pagedchat.server.served import Served

if TYPE_CHECKING:
    from pagedchat.outputs import RequestOutput


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked."""

    messages: list[dict[str, Any]]
    params: SamplingParams
    tools: Offered | None
    template_kwargs: dict[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    continue_final_message: bool = False


class Conversation:
    """One of them on its way to its replies."""

    def __init__(self, served: Served, asked: Asked) -> None:
        self._served = served
        self._asked = asked
        self._opened: str | None = None
        """The tag of a thought with which the prompt ends; None: not yet known."""
        self._thoughts = ""
        """Of all replies."""
        self.tally = Tally()

    async def outputs(self) -> "AsyncGenerator[RequestOutput, None]":
        """As they come; `parser` may be asked from the first one on."""
        asked = self._asked
        source = self._served.engine.chat(
            asked.messages,
            asked.params,
            tools=asked.tools.told if asked.tools is not None else None,
            chat_template_kwargs=asked.template_kwargs or None,
            add_generation_prompt=asked.add_generation_prompt,
            continue_final_message=asked.continue_final_message,
        )
        async with aclosing(source) as each:
            async for output in each:
                self.tally.add(0, output)
                if self._opened is None:
                    self._opened = await self._find_opened()
                yield output

    def parser(self) -> ReplyParser | None:
        """For one reply; None where it is text and nothing else."""
        tools = self._asked.tools
        told_apart = self._served.thoughts and (tools is None or tools.form is None)
        splitter = ThoughtSplitter(self._opened or "") if told_apart else None
        strips = self._served.info.chat_template == "plain"
        if splitter is None and tools is None and not strips:
            return None
        calls = tools.splitter() if tools is not None else None
        one_call = tools is not None and tools.one_call
        return ReplyParser(splitter, calls, one_call=one_call, strip_start=strips)

    def add_thought(self, text: str) -> None:
        """Of any reply, to be counted at the end."""
        self._thoughts += text

    async def num_thought_tokens(self) -> int | None:
        """Of all replies; None where nobody has thought."""
        if not self._thoughts:
            return None
        return len(await self._served.engine.tokenize(self._thoughts, add_special_tokens=False))

    async def _find_opened(self) -> str:
        """A plain transcript ends with no tag; nor does anything where nobody looks for one."""
        if not self._served.thoughts or self._served.info.chat_template == "plain":
            return ""
        return await self._served.thought_finder.opened_by(self.tally.prompt(0))

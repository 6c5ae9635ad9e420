"""An engine loop in this process, with everything that it publishes in a list."""

from typing import Any

from pagedchat import events as ev
from pagedchat.cache_events import FIRST_OF_PROGRAMS
from pagedchat.chat.template import ChatTemplate
from pagedchat.chat.turns import Turn
from pagedchat.engine.core import EngineCore
from pagedchat.engine.mirror import CacheMirror
from pagedchat.engine.sampling_params import SamplingOverrides, SamplingParams
from pagedchat.service.chats import Chats
from pagedchat.service.commands import AnyCommand, Generate
from pagedchat.service.loop import EngineLoop, Inbox, Received
from pagedchat.service.programs import Programs
from pagedchat.service.prompts import PrepareAtOnce, Preparer, PromptWorkshop
from pagedchat.service.publisher import Publisher
from pagedchat.service.rendering import Renderer
from pagedchat.service.text_model import TextModel
from tests.fakes import FakeClock, FakeModelRunner
from tests.service.fake_engine import FakeLoaded


class EngineRig:
    """Commands in by `send`, steps by `step` or `run_dry`, events out in `events`."""

    def __init__(
        self,
        runner: FakeModelRunner | None = None,
        *,
        plain: bool = False,
        renderer: Renderer | None = None,
        preparer: Preparer | None = None,
        **loaded: Any,
    ) -> None:
        self.loaded = FakeLoaded(**({"runner": runner} if runner else {}), **loaded)
        self.clock = FakeClock()
        self.events: list[ev.EngineEvent] = []
        self.core = EngineCore(
            self.loaded.limits, self.loaded.runner, grammars=self.loaded.grammars, first_id=FIRST_OF_PROGRAMS
        )
        self.publisher = Publisher(self.events.append, self.clock)
        self.tokenizer = self.loaded.tokenizer
        template = ChatTemplate(None if plain else self.loaded.chat_template)
        text_model = TextModel(self.tokenizer, template, SamplingParams(temperature=0, max_tokens=None))
        chats = Chats(self.core, self.publisher, text_model, self.clock, renderer)
        self.workshop = PromptWorkshop(text_model, self.loaded.grammars)
        preparer = preparer or PrepareAtOnce(self.workshop)
        programs = Programs(self.core, self.publisher, preparer, self.tokenizer, self.clock)
        self.inbox: Inbox = Inbox()
        self.loop = EngineLoop(self.core, chats, programs, self.publisher, self.inbox, self.clock)

    def send(self, *commands: AnyCommand) -> None:
        for command in commands:
            self.loop.handle(Received(command, self.clock()))

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.clock.advance(0.01)
            assert self.loop.may_step
            self.loop.step()

    def run_dry(self) -> None:
        while self.loop.may_step:
            self.step()
        self.publisher.flush()

    def of(self, kind: type, request_id: int | None = None) -> list[Any]:
        found = [event for event in self.events if isinstance(event, kind)]
        return [event for event in found if request_id is None or event.request_id == request_id]

    def text(self, request_id: int) -> str:
        return "".join(delta.text for delta in self.of(ev.TextDelta, request_id))

    def finished(self, request_id: int) -> ev.RequestFinished:
        (event,) = self.of(ev.RequestFinished, request_id)
        return event

    def mirror(self) -> CacheMirror:
        """Folded from all that was published."""
        limits = self.loaded.limits
        mirror = CacheMirror(limits.num_blocks, limits.block_size, limits.num_host_blocks)
        for steps in self.of(ev.Steps):
            for report in steps.reports:
                mirror.apply(report)
        return mirror

    def held_text(self, session_id: int) -> str:
        return self.tokenizer.decode(self.core.sequences[session_id].token_ids, skip_special_tokens=False)


def ask(session_id: int, request_id: int, *texts: str, raw: bool = False, **overrides: Any) -> Generate:
    """A conversation of user and assistant turns in alternation, the user's first."""
    turns = [Turn("assistant" if i % 2 else "user", text) for i, text in enumerate(texts)]
    return Generate(session_id, request_id, turns, SamplingOverrides(**overrides), raw)

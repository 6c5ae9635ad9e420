"""The program that users run, and one who uses it without a pause: by what they do, not by how fast.

Prompts are written and sent by key; chats come and go, fork, are stopped and asked again; the inspector opens and
closes, and goes back in time. Nobody sees the screen, but it is drawn.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.chat.session import ChatSession
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.errors import PagedChatError
from pagedchat.service.client import EngineClient
from pagedchat.tui import app
from pagedchat.tui.app import PagedChatApp
from pagedchat.tui.chat.chat_pane import ChatPane
from pagedchat.tui.kit.textual_quirks import start_work
from pagedchat.view.options import UiOptions

SIZE = (180, 50)
"""Columns and rows: room for the inspector beside the chats."""
MIN_CHATS, MAX_CHATS = 2, 7
MAX_TURNS = 8
"""Of a chat; then it is closed."""
STEPS_BETWEEN = 200
"""Engine steps from one doing to the next: ten seconds at a reader's pace."""
_LOOK_SECONDS = 0.005
_PATIENCE = 15.0
_PREFIXES = (
    "You are a patient teacher who explains everything with an example from the sea. ",
    "Write as if every line was a letter that nobody will ever send: ",
    "",
)
_WORDS = ("boat", "harbour", "light", "morning", "net", "rain", "bell", "lamp", "tide", "quay", "wind", "gull")


class SoakedApp(PagedChatApp):
    """Nothing about it is different but that somebody is there as soon as it is.

    Args:
        link: the engine, not yet started.
        num_steps: the run is over after so many steps of the engine.
        seed: of what the user does.
        look: called with the program and the step every few hundred steps, and once at the end.
        look_every: how many.
    """

    CSS_PATH = str(Path(app.__file__).with_name("app.tcss"))

    def __init__(
        self,
        link: EngineClient,
        num_steps: int,
        seed: int,
        look: Callable[["SoakedApp", int], Awaitable[bool]],
        look_every: int,
    ) -> None:
        options = UiOptions(model="soaked", sessions=MIN_CHATS, overrides=SamplingOverrides(max_tokens=200))
        super().__init__(link, options, PromptHistory())
        self.engine_link = link
        self.done: Counter[str] = Counter()
        """What the user did, and how often."""
        self._num_steps = num_steps
        self._look, self._look_every = look, look_every
        self._draw = random.Random(seed)  # noqa: S311 - not for secrets

    def on_ready(self) -> None:
        """The first frame is out."""
        start_work(self, self._use, "user")

    # --- the run ------------------------------------------------------------------------------------

    async def _use(self) -> None:
        await self._until(lambda: self.view.live is not None)
        next_doing = next_look = 0
        while (step := self.view.present.step) < self._num_steps and self.view.live is not None:
            if step >= next_look:
                next_look = step + self._look_every
                if not await self._look(self, step):
                    break
            if step >= next_doing:
                next_doing = step + STEPS_BETWEEN
                await self._do_something()
            await self._keep_writing()
            await asyncio.sleep(_LOOK_SECONDS)
        await self._clear_up()
        await self._look(self, self.view.present.step)
        await self.action_quit()

    async def _clear_up(self) -> None:
        """One chat is left, with nothing in it."""
        self.go_to_step(None)
        self.action_chats()
        self.engine.limit(None)
        before = list(self.desk)
        await self.chats.open_chat()
        for chat in before:
            self.chats.close_chat(chat)
        await self._until(lambda: not self.view.present.mirror.sequences)

    async def _until(self, there: Callable[[], bool]) -> None:
        """Wait for something of the engine's; not for ever."""
        async with asyncio.timeout(_PATIENCE):
            while not there():  # noqa: ASYNC110 - a user looks, and is told nothing
                await asyncio.sleep(_LOOK_SECONDS)

    # --- prompts ------------------------------------------------------------------------------------

    async def _keep_writing(self) -> None:
        """Whoever is idle is asked something; a chat of many turns makes room for another."""
        for chat in list(self.desk):
            if chat.busy:
                continue
            if len(chat.entries) > 2 * MAX_TURNS or chat.notice is not None:
                await self._replace(chat)
            else:
                await self._write(chat)

    async def _replace(self, chat: ChatSession) -> None:
        await self.chats.open_chat()
        self.chats.close_chat(chat)
        self.done["chats replaced"] += 1

    async def _write(self, chat: ChatSession) -> None:
        """By key, as people do; the past is read-only."""
        self.go_to_step(None)
        self.action_chats()
        self.chats.focus_chat(chat)
        pane = next(pane for pane in self.chats.query(ChatPane) if pane.session is chat)
        version = chat.version
        pane.composer.load_text(self._prompt())
        pane.composer.action_send()
        await self._until(lambda: chat.version > version)
        self.done["prompts"] += 1

    def _prompt(self) -> str:
        words = self._draw.choices(_WORDS, k=self._draw.randint(2, 12))
        return self._draw.choice(_PREFIXES) + " ".join(words)

    # --- everything else ----------------------------------------------------------------------------

    async def _do_something(self) -> None:
        doings = (
            self._open, self._close, self._fork, self._fork, self._stop, self._again, self._inspect, self._travel,
            self._arrange, self._squeeze,
        )  # fmt: skip
        doing = self._draw.choice(doings)
        try:
            await doing(self._draw.choice(self.desk.chats))
        except PagedChatError:
            self.done["refused"] += 1

    async def _open(self, _: ChatSession) -> None:
        if len(self.desk) < MAX_CHATS:
            await self.chats.open_chat()
            self.done["chats opened"] += 1

    async def _close(self, chat: ChatSession) -> None:
        if len(self.desk) > MIN_CHATS:
            self.chats.close_chat(chat)
            self.done["chats closed"] += 1

    async def _fork(self, chat: ChatSession) -> None:
        if len(self.desk) < MAX_CHATS and chat.entries:
            await self.chats.fork_chat(chat)
            self.done["forks"] += 1

    async def _stop(self, chat: ChatSession) -> None:
        if self.chats.stop_replies([chat]):
            self.done["replies stopped"] += 1

    async def _again(self, chat: ChatSession) -> None:
        """Whoever does not like a reply does not wait for its end."""
        self.chats.stop_replies([chat])
        await self._until(lambda: not chat.busy)
        if self.desk.regenerate(chat):
            self.done["asked again"] += 1

    async def _inspect(self, _: ChatSession) -> None:
        """The inspector, a block of its, the help page: what is open is closed."""
        if self.screen is not self.chats:
            self.action_chats()
        elif self._draw.random() < 0.3:
            self.open_block(self._draw.randrange(self.view.present.info.num_blocks))
        elif self._draw.random() < 0.2:
            self.action_help()
        else:
            await self.action_inspector()
        self.done["inspections"] += 1

    async def _travel(self, _: ChatSession) -> None:
        if self.view.past is not None:
            self.go_to_step(None)
        else:
            self.go_to_step(max(self.time_travel.first, self.time_travel.last - self._draw.randrange(3_000)))
        self.done["journeys in time"] += 1

    async def _arrange(self, _: ChatSession) -> None:
        self._draw.choice((self.chats.action_next_layout, self.chats.action_zoom))()
        self.done["layouts"] += 1

    async def _squeeze(self, _: ChatSession) -> None:
        num_blocks = self.view.present.info.num_blocks
        self.engine.limit(None if self.view.limit else self._draw.randint(num_blocks // 2, num_blocks))
        self.done["limits"] += 1

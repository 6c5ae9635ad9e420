"""Slash commands: whatever is typed after a slash is carried out, or refused in a sentence with a hint."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from pagedchat.chat.session import ChatSession
from pagedchat.engine.limits import EngineLimits
from pagedchat.errors import PagedChatError
from pagedchat.remote.openai.address import server_address
from pagedchat.service.commands import AnyCommand, Generate
from pagedchat.service.wire import FrameWriter
from pagedchat.trace.reader import open_trace
from pagedchat.tui.commands.registry import COMMANDS, candidates, completed, run_line
from pagedchat.tui.commands.slash_command import CommandContext
from pagedchat.tui.commands.syntax import is_command
from pagedchat.tui.engine_controls import EngineControls
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.engine_view import EngineView
from pagedchat.view.options import UiOptions
from pagedchat.view.past.time_travel import TimeTravel
from tests.scripted_reports import ready
from tools.fuzz.bent_trees import any_of
from tools.fuzz.target import Target

_NAMES = tuple(name for command in COMMANDS for name in (command.name, *command.aliases))
_CHOICES = tuple({choice for command in COMMANDS for choice in command.choices})
_WORDS = st.one_of(
    any_of([
        "", "0", "-1", "1", "2", "7", "13", "1e9", "1e999", "nan", "inf", "-inf", "9" * 25, "-" + "9" * 25,
        "9" * 5000, "0x10", "1_0", "1.5", "٣", "²", "½",
        "1,3", ",", "1,,2", "1," * 500, "all", "off", "live", "[red]", "\\", "%s", "{}", "日本", "🏻", "\u202e",
        "\ud800", "\x00", "\x1b]0;x\x07", "a" * 5000,
        "~", "~nobody-of-that-name/x", "/dev/null", "/dev/full", "/proc/self/mem", "/", ".", "../" * 300,
        "a\tb", "save", "load", "code", "clear",
        "textual-dark", "temperature", *_CHOICES,
    ]),
    st.text(max_size=8), st.integers().map(str), st.floats().map(str),
)  # fmt: skip


class _OneGroup:
    """The program as its only group of chats."""

    def __init__(self, program: "_Program") -> None:
        self._program = program

    def of(self, _: ChatSession) -> "_Program":
        """The group of any chat."""
        return self._program

    @property
    def chats(self) -> list[ChatSession]:
        """All chats."""
        return list(self._program.desk.chats)

    def __iter__(self) -> "Iterator[_Program]":
        return iter((self._program,))

    def named(self, text: str) -> "_Program | None":
        """By its number alone."""
        return self._program if text == "1" else None


class _Program:
    """The program and its chats as far as commands may touch them; what they are told is said to nobody."""

    def __init__(self, running: bool) -> None:
        self.view = EngineView()
        if running:
            self.view.apply(ready(EngineLimits(num_blocks=12)))
        self.engine = EngineControls(self.view, self._send)
        self.desk = ChatDesk(self._send, UiOptions())
        for name in ("tale", ""):
            self.desk.new(name)
        self.desk.submit(self.desk.chats[0], "Once\n```\ncode\n```")
        self.desk.chats[0].finish("stop")
        self.time_travel = TimeTravel(self.view, lambda: None)
        self.metrics_url = ""
        self.theme = "textual-dark"
        self.available_themes = {"textual-dark": None}
        self.chats = self
        self.groups = _OneGroup(self)
        self.name = "the only one"

    def _send(self, command: AnyCommand) -> None:
        if not isinstance(command, Generate):  # whose numbers are checked when they are set
            FrameWriter().frame(command)

    def say(self, message: str) -> None:
        assert message

    def copy(self, text: str) -> None:
        assert isinstance(text, str)

    def open_trace(self, path: Path) -> None:
        open_trace(path)

    def go_to_step(self, step: int | None) -> None:
        self.time_travel.live() if step is None else self.time_travel.goto(step)

    async def fork_chat(self, source: ChatSession, count: int = 1, num_prompts: int | None = None) -> None:
        at = source.num_prompts if num_prompts is None else num_prompts
        for _ in range(count):
            self.desk.fork_at(source, at)

    async def reply_besides(self, chat: ChatSession, count: int) -> None:
        for _ in range(count):
            self.desk.reply_besides(chat)

    async def ask_several(self, chat: ChatSession, count: int, prompt: str) -> None:
        self.send_to([chat, *self.desk.twins(chat, count - 1, prompt)], prompt)

    def edit_prompt(self, chat: ChatSession, number: int | None = None) -> None:
        self.desk.take_back(chat, max(0, (number or chat.num_prompts) - 1))

    def take_back(self, chat: ChatSession, count: int) -> None:
        self.desk.take_back(chat, max(0, chat.num_prompts - count))

    def go_to_sibling(self, chat: ChatSession, step: int) -> None:
        there = chat.sibling(step)
        if there is not None:
            self.desk.go_through(chat, there)

    def promote(self, chat: ChatSession) -> None:
        for rival in self.desk.rivals(chat):
            self.desk.close(rival)

    def send_to(self, chats: Iterable[ChatSession], prompt: str) -> None:
        for chat in chats:
            self.desk.submit(chat, prompt)

    async def open_chat(self, name: str = "") -> None:
        self.desk.new(name)

    def regenerate(self, chat: ChatSession) -> None:
        self.desk.regenerate(chat)

    def search_reply(self, chat: ChatSession, beam_width: int, prompt: str = "") -> None:
        if not chat.busy:
            self.desk.search(chat, beam_width, prompt)

    def show_likelihood(self, chats: Iterable[ChatSession], count: int | None) -> None:
        for chat in chats:
            chat.set_sampling("logprobs", count)

    def continue_reply(self, chat: ChatSession) -> None:
        self.desk.go_on(chat)

    async def open_server(self, text: str) -> None:
        server_address(text, {})

    def stop_replies(self, chats: Iterable[ChatSession]) -> bool:
        return bool([chat for chat in chats if self.desk.stop(chat)])

    async def _nothing(self, *_: object) -> None:
        """What only changes the screen."""

    leave_chat = open_saved = show_table = action_tour = action_quit = action_model = toggle_tree = delete_chat = (
        switch_model
    ) = open_beside = close_model = move_chat = _nothing

    def _show(self, *_: object) -> None:
        """The same, at once."""

    copy_reply = copy_chat = copy_code = show_history = set_layout = open_block = confirm = choose = write = _show
    choose_server = choose_place = _show

    def __getattr__(self, name: str) -> Callable[..., None]:
        """What keys do by the same name, too."""
        if name.startswith("action_"):
            return self._show
        raise AttributeError(name)


@st.composite
def _lines(draw: st.DrawFn) -> tuple[bool, list[str]]:
    """Whether the engine runs, and lines typed one after the other."""
    lines = []
    for _ in range(draw(st.integers(1, 5))):
        name = draw(st.sampled_from(_NAMES) if draw(st.integers(0, 9)) else st.text(max_size=6))
        words = draw(st.lists(_WORDS, max_size=3))
        lines.append(draw(st.sampled_from((" ", " ", "  ", "\t"))).join(["/" + name, *words]))
    return draw(st.booleans()), lines


def _check(example: tuple[bool, list[str]]) -> None:
    running, lines = example
    program: Any = _Program(running)
    for line in lines:
        candidates(line)
        assert len(completed(line)) >= len(line)
        if is_command(line):
            _run(CommandContext(program, program.desk.chats[0]), line)


def _run(context: CommandContext, line: str) -> None:
    try:
        asyncio.run(run_line(context, line))
    except PagedChatError as error:
        assert error.message
        assert str(error)


TARGETS = (Target("slash commands", _lines(), _check),)

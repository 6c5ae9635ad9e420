"""The program that users run, with prompts already sent to every chat. Nothing else about it is different."""

from pathlib import Path

from pagedchat.bench.ui.markdown_sample import old_entries
from pagedchat.bench.ui.script import NUM_PROMPTS, PROMPT
from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.service.commands import EngineLink
from pagedchat.tui import app
from pagedchat.tui.app import PagedChatApp
from pagedchat.view.options import UiOptions


class StreamingApp(PagedChatApp):
    """Has something to write for as long as a benchmark may take.

    Args:
        link: the engine, not yet started.
        options: as a user would give them.
        history: prompts sent before.
        old_lines: of Markdown that every chat holds already; the engine is not told of them.
    """

    CSS_PATH = str(Path(app.__file__).with_name("app.tcss"))

    def __init__(self, link: EngineLink, options: UiOptions, history: PromptHistory, old_lines: int = 0) -> None:
        super().__init__(link, options, history)
        self._old_lines = old_lines

    def on_ready(self) -> None:
        """The first frame is out and the chats are there."""
        for _ in range(NUM_PROMPTS):
            for chat in self.desk.chats:
                self.desk.submit(chat, PROMPT)
        for chat in self.desk.chats if self._old_lines else ():
            chat.fill([*old_entries(self._old_lines), *chat.entries])
            chat.version += 1

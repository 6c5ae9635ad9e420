"""The program that users run, with prompts already sent to every chat. Nothing else about it is different."""

from pathlib import Path

from pagedchat.bench.ui.script import NUM_PROMPTS, PROMPT
from pagedchat.tui import app
from pagedchat.tui.app import PagedChatApp


class StreamingApp(PagedChatApp):
    """Has something to write for as long as a benchmark may take."""

    CSS_PATH = str(Path(app.__file__).with_name("app.tcss"))

    def on_ready(self) -> None:
        """The first frame is out and the chats are there."""
        for _ in range(NUM_PROMPTS):
            for chat in self.desk.chats:
                self.desk.submit(chat, PROMPT)

"""The history of one program while it is open: store, search and windows over one file, tidied when it is opened.

Knows no threads. Everything that is done here may raise what SQLite raises.
"""

from pathlib import Path

from pagedchat.chat.identity import new_id
from pagedchat.chat.sanitize import one_line
from pagedchat.errors import PagedChatError
from pagedchat.history.database import open_database
from pagedchat.history.presence import Presence
from pagedchat.history.records import ChatRecord, LayoutRecord
from pagedchat.history.search import HistorySearch
from pagedchat.history.sessions import forked
from pagedchat.history.store import HistoryStore, Trees
from pagedchat.history.windows import Windows


class OpenHistory:
    """All that can be asked of a history.

    Args:
        path: its file.
        presence: this program's.
        read_only: look only.

    Raises:
        HistoryError: it cannot be opened.
    """

    def __init__(self, path: Path, presence: Presence, *, read_only: bool = False) -> None:
        self.database = open_database(path, read_only=read_only)
        self.presence = presence
        self.store = HistoryStore(self.database)
        self.windows = Windows(self.store, presence)
        self.search = HistorySearch(self.database, presence.is_there)
        if not read_only:
            self._tidy()

    def _tidy(self) -> None:
        try:
            self.presence.announce()
            self.presence.sweep()
            self.store.close_left_open(self.windows.open_elsewhere())
            self.windows.sweep()
            self.store.sweep()
        except BaseException:
            self.database.close()
            raise

    def last_layout(self) -> LayoutRecord:
        """What was open last, which is this program's from now on.

        Raises:
            PagedChatError: nothing was, or another program has it.
        """
        layout = self.windows.take_over()
        if layout is not None:
            return layout
        process = self.windows.elsewhere()
        if process is not None:
            raise PagedChatError(f"What was open last is open in another pagedchat, process {process}.")
        raise PagedChatError("There is no earlier chat to go on with.")

    def chat(self, chat_id: int, trees: Trees | None = None) -> tuple[ChatRecord, str] | None:
        """A chat to go on with, and what is to be said about that; None if it is gone. `trees` as in the store.

        One that another program has open is not written to by two: what comes back is a fork of it.
        """
        record = self.store.read(chat_id, trees)
        process = self.search.open_elsewhere().get(chat_id)
        if record is None or process is None:
            return None if record is None else (record, "")
        label = one_line(record.title) or "new chat"
        return forked(record, new_id(), label), (
            f"“{label}” is open in another pagedchat, process {process}: this is a fork of it."
        )

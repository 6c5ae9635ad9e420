"""Whatever is done to chats, in whatever order: the history gives back what was written, and stays whole."""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from pagedchat.chat.session import ChatSession
from pagedchat.history.place import FILE_NAME
from pagedchat.history.records import LayoutRecord, PaneRecord
from tests.history.histories import close_history, is_sound, open_history, record

TEXTS = st.text(max_size=30) | st.sampled_from(
    ["", "boat", "\x00", "\x1b[31m", "a\ud800", "\u202eevil", "🌊" * 9, "'\"%_\\"]
)
SAID = st.text(min_size=1, max_size=30)


class RandomOperations(RuleBasedStateMachine):
    """Chats that are written, read, deleted, and reopened by the next program."""

    chats = Bundle("chats")

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.history = open_history(Path(self.folder.name))
        self.sessions = {}
        self.written = {}
        self.deleted = set()
        self.layout = None
        self.requests = 0

    def request(self):
        self.requests += 1
        return self.requests

    def write(self, session, draft=""):
        found = record(session, draft)
        self.history.store.write(found)
        self.written[session.chat_id] = found

    @rule(target=chats, name=TEXTS, system=st.none() | TEXTS)
    def begin(self, name, system):
        return ChatSession(len(self.written) + 1, name=name, system=system)

    @rule(chat=chats, prompt=SAID, draft=TEXTS)
    def ask(self, chat, prompt, draft):
        if chat.busy:
            chat.enqueue(prompt)
        else:
            chat.ask(prompt, self.request())
        self.write(chat, draft)

    @rule(chat=chats, text=SAID)
    def stream(self, chat, text):
        if chat.busy:
            chat.append(text, 1)
            self.write(chat)

    @rule(chat=chats, reason=st.sampled_from(["stop", "length", "abort", "error"]))
    def finish(self, chat, reason):
        if chat.busy:
            chat.finish(reason)
            self.write(chat)

    @rule(chat=chats)
    def regenerate(self, chat):
        if chat.regenerate(self.request()):
            self.write(chat)

    @rule(target=chats, chat=chats)
    def fork(self, chat):
        child = chat.fork(1, self.request())
        self.write(child)
        return child

    @rule(chat=chats)
    def delete(self, chat):
        if chat.chat_id in self.written and chat.chat_id not in self.deleted:
            self.history.store.delete(chat.chat_id)
            self.deleted.add(chat.chat_id)

    @rule(chat=chats)
    def restore(self, chat):
        self.history.store.restore(chat.chat_id)
        self.deleted.discard(chat.chat_id)

    @rule(chat=consumes(chats))
    def sweep_away(self, chat):
        if chat.chat_id in self.written:
            self.history.store.delete(chat.chat_id)
            self.deleted.add(chat.chat_id)
            self.history.store.sweep(older_than=-1)
            for gone in self.deleted:
                del self.written[gone]
            self.deleted = set()

    @rule(numbers=st.lists(st.integers(1, 9), max_size=4), zoomed=st.booleans())
    def arrange(self, numbers, zoomed):
        ids = [*self.written, None, None]
        panes = tuple(PaneRecord(number, ids[number % len(ids)]) for number in numbers)
        layout = LayoutRecord(panes, numbers[0] if numbers else 0, None, zoomed)
        self.history.windows.write(layout)
        if self.layout is not None or any(pane.chat_id for pane in panes):
            self.layout = layout

    @rule()
    def reopen(self):
        close_history(self.history)
        self.history = open_history(Path(self.folder.name))
        found = self.history.windows.take_over()
        assert (found is None) == (self.layout is None)
        if self.layout is not None:
            lost = {pane.chat_id for pane in self.layout.panes} - set(self.written)
            panes = tuple(
                PaneRecord(pane.number, None if pane.chat_id in lost else pane.chat_id)
                for pane in self.layout.panes
            )
            assert (found.panes, found.zoomed) == (panes, self.layout.zoomed)

    @invariant()
    def what_was_written_is_read(self):
        for chat_id, wanted in self.written.items():
            found = self.history.store.read(chat_id)
            if chat_id in self.deleted:
                assert found is None
                continue
            turns = [(entry.turn_id, entry.turn.role, storable(entry.turn.text)) for entry in wanted.turns]
            if wanted.open_text:
                turns.append((wanted.open_turn_id, "assistant", storable(wanted.open_text)))
            assert [(entry.turn_id, *_of(entry)) for entry in found.turns] == turns
            assert (found.title, found.draft) == (storable(wanted.title), storable(wanted.draft))
            assert found.queue == tuple(map(storable, wanted.queue))
            assert (found.system, found.origin and found.origin.chat_id) == (
                None if wanted.system is None else storable(wanted.system),
                wanted.origin and wanted.origin.chat_id,
            )
        listed = {chat.chat_id for chat in self.history.search.chats().chats}
        assert listed == set(self.written) - self.deleted

    def teardown(self):
        close_history(self.history)
        assert is_sound(Path(self.folder.name) / FILE_NAME)
        self.folder.cleanup()


def storable(text):
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _of(entry):
    return entry.turn.role, entry.turn.text


TestRandomOperations = RandomOperations.TestCase
TestRandomOperations.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)

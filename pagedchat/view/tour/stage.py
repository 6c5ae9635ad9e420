"""What the tour's scripts may do: chats of its own on the real engine, and the pool's limit.

It remembers how things were, so that they can be put back. Knows the desk and the view; panes are opened and closed
by whoever is told.
"""

from collections.abc import Callable, Iterable
from itertools import cycle, islice

from pagedchat.chat.session import ChatSession
from pagedchat.engine.mirror import CacheMirror, MirrorSequence
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.events import EngineReady
from pagedchat.service.commands import AnyCommand, Pause, Resume, SetLimit, SetPace
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.engine_view import EngineView

NAME = "tour"
PACE = 0.08
"""Seconds a step takes while the tour is given: slow enough to be watched."""
POOL = 256
"""Blocks of the tour's own pool, by the limit: of many thousand nobody would see the few that it is about."""
SPARE = 64
"""Blocks over what the user's chats hold: they must not give way to a tour."""
GO_ON = "And what happened after that?"
_STORY = (
    "The boat left the harbour before dawn with nine people and one lantern on board. Nobody on the quay looked "
    "up, for the bells were ringing for somebody else. By noon the fog had come down and the lantern was out. "
)
_QUESTION = "What did they find?"
_PROMPT_BLOCKS = 2
_REPLY_BLOCKS = 2.5
_MIN_REPLY = 20
_SHARE_OF_CONTEXT = 6
"""The prompt and each reply take at most such a part of what a chat may hold."""


class Stage:
    """One tour's chats, and the engine's settings before it began.

    Args:
        view: what the engine tells; its live part is there.
        desk: all chats.
        send: commands to the engine.
        opened: a chat of the tour was made, maybe as a fork of another: it wants a pane.
        closing: a chat of the tour is to be closed, and its pane.
    """

    def __init__(
        self,
        view: EngineView,
        desk: ChatDesk,
        send: Callable[[AnyCommand], None],
        opened: Callable[[ChatSession, ChatSession | None], None],
        closing: Callable[[ChatSession], None],
    ) -> None:
        self._view = view
        self._desk = desk
        self._send = send
        self._opened = opened
        self._closing = closing
        self._chats: list[ChatSession] = []
        self._before = (view.limit, view.pace, view.paused)
        self._pool = self._before[0]
        """The limit while nothing is squeezed."""

    # --- reading ------------------------------------------------------------------------------------

    @property
    def info(self) -> EngineReady:
        """The engine."""
        assert self._view.live is not None  # noqa: S101 - scripts run only while there is an engine
        return self._view.live.info

    @property
    def mirror(self) -> CacheMirror:
        """The cache now."""
        assert self._view.live is not None  # noqa: S101 - as above
        return self._view.live.mirror

    @property
    def chats(self) -> list[ChatSession]:
        """The tour's chats, without those that the user has closed."""
        return [chat for chat in self._chats if chat in self._desk.chats]

    @property
    def busy(self) -> bool:
        """Whether a reply is being written in any of them."""
        return any(chat.busy for chat in self.chats)

    @property
    def in_use(self) -> int:
        """Blocks that somebody holds."""
        last = self.mirror.last
        return last.pool.in_use if last is not None else 0

    def is_mine(self, seq_id: int) -> bool:
        """Whether a sequence belongs to the tour."""
        return any(chat.session_id == seq_id for chat in self.chats)

    def sequence(self, chat: ChatSession) -> MirrorSequence | None:
        """What the cache knows of a chat."""
        return self.mirror.sequences.get(chat.session_id)

    def name(self, seq_id: int) -> str:
        """What the user calls a chat."""
        return self._view.name(seq_id)

    def blocks(self, block_ids: Iterable[int], most: int = 6) -> str:
        """Block numbers in words: `block 041`, `blocks 041 042 043 …`."""
        ids = list(block_ids)
        shown = " ".join(f"{block_id:03d}" for block_id in ids[:most]) + (" …" if len(ids) > most else "")
        return f"block{'' if len(ids) == 1 else 's'} {shown}"

    # --- acting -------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Let the engine run, slowly, and with no more blocks than can be watched."""
        small = max(POOL, self.in_use + SPARE)
        if small < (self._pool or self.info.num_blocks):
            self._pool = small
            self._send(SetLimit(small))
        self._send(Resume())
        self._send(SetPace(max(PACE, self._before[1])))

    def open(self) -> ChatSession:
        """A new chat that writes replies of a fixed length."""
        chat = self._desk.new(NAME)
        chat.kept = False
        chat.overrides = SamplingOverrides(
            max_tokens=self._reply_tokens(), ignore_eos=True, temperature=0.8, seed=1
        )
        return self._add(chat, None)

    def fork(self, source: ChatSession) -> ChatSession:
        """A chat over the same blocks."""
        return self._add(self._desk.fork(source), source)

    def _add(self, chat: ChatSession, source: ChatSession | None) -> ChatSession:
        self._chats.append(chat)
        self._opened(chat, source)
        return chat

    def ask(self, chat: ChatSession, prompt: str = GO_ON) -> None:
        """Send a prompt."""
        self._desk.submit(chat, prompt)

    def ask_again(self, chat: ChatSession) -> bool:
        """Another reply to the last prompt; false if there is none, or one is being written."""
        return self._desk.regenerate(chat)

    def close(self, chat: ChatSession) -> None:
        """Drop a chat and its blocks."""
        self._closing(chat)

    def limit(self, num_blocks: int | None) -> None:
        """The pool uses at most so many blocks; None is as many as the tour's own pool has."""
        self._send(SetLimit(self._pool if num_blocks is None else min(max(1, num_blocks), self.info.num_blocks)))

    def restore(self) -> None:
        """Everything as it was: the tour's chats are gone, limit and pace are what they were."""
        for chat in self.chats:
            self._desk.stop(chat)
            self.close(chat)
        limit, pace, paused = self._before
        self._send(SetLimit(limit))
        self._send(SetPace(pace))
        if paused:
            self._send(Pause())

    # --- sizes --------------------------------------------------------------------------------------

    @property
    def prompt(self) -> str:
        """A story of two blocks or more: a word is a token at least."""
        num_words = min(_PROMPT_BLOCKS * self.info.block_size, self._room())
        words = islice(cycle(_STORY.split()), num_words)
        return " ".join([*words, _QUESTION])

    def _reply_tokens(self) -> int:
        wanted = max(_MIN_REPLY, round(_REPLY_BLOCKS * self.info.block_size))
        return max(1, min(wanted, self._room()))

    def _room(self) -> int:
        return self._desk.context_limit // _SHARE_OF_CONTEXT

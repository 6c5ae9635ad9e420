"""What the tour's scripts may do: chats of its own on the real engine, and the pool's limit.

It remembers how things were, so that they can be put back. Knows the desk and the view; panes are opened and closed
by whoever is told.
"""

from collections.abc import Callable, Iterable
from itertools import cycle

from pagedchat.chat.session import ChatSession
from pagedchat.engine.mirror import CacheMirror, MirrorSequence
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.events import EngineReady, StepReport
from pagedchat.service.commands import AnyCommand, Pause, Resume, SetLimit, SetPace
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.engine_view import EngineView
from pagedchat.view.state.computed_once import ComputedOnce

NAME = "tour"
PACE = 0.08
"""Seconds a step takes while the tour is given: slow enough to be watched."""
POOL = 256
"""Blocks of the tour's own pool, by the limit: of many thousand nobody would see the few that it is about."""
SPARE = 64
"""Blocks over what the user's chats hold: they must not give way to a tour."""
STORIES = tuple(f"Tell me a story about a {what}." for what in ("star", "bird", "clock", "lighthouse"))
"""Prompts that the model in the box answers well, one after the other; each reply is longer than it is let be."""
_SYSTEM = (
    "You are a helpful assistant.",
    "Answer in simple English.",
    "You help people with questions of all kinds, and you tell them stories when they ask for one.",
)
"""The system prompt of the tour's chats, over and over where blocks are large."""
_PROMPT_BLOCKS = 2
_REPLY_BLOCKS = 2.5
_MIN_REPLY = 20
_TEMPLATE_TOKENS = 8
"""Around a turn, or so."""
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
        self._once = ComputedOnce()

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

    def note(self, report: StepReport) -> None:
        """Keep in mind what sequences lost; of every report while the tour is given."""
        hears = self._once.hears()
        for event in report.events:
            if type(event) in hears:
                hears[type(event)](event)

    def num_lost(self, seq_id: int) -> int:
        """Tokens that a sequence had computed when its blocks were taken."""
        return self._once.of(seq_id)

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
        chat.overrides = SamplingOverrides(max_tokens=self._reply_tokens(), ignore_eos=True, seed=2)
        chat.set_system(self._system())
        return self._add(chat, None)

    def fork(self, source: ChatSession) -> ChatSession:
        """A chat over the same blocks."""
        return self._add(self._desk.fork(source), source)

    def _add(self, chat: ChatSession, source: ChatSession | None) -> ChatSession:
        self._chats.append(chat)
        self._opened(chat, source)
        return chat

    def ask(self, chat: ChatSession) -> None:
        """Ask a chat for its next story."""
        self._desk.submit(chat, _next_story(chat))

    def blocks_to_start(self, chat: ChatSession) -> int:
        """Blocks that the chat's next story needs before a word of the reply is there, or so.

        How many tokens the prompt has is judged by what the chat has had so far.
        """
        sequence = self.sequence(chat)
        tokens, table = (sequence.token_ids, sequence.block_table) if sequence is not None else ([], [])
        num_chars = sum(len(turn.text) for turn in chat.turns)
        prompt = len(_next_story(chat)) * len(tokens) / max(1, num_chars) + _TEMPLATE_TOKENS
        return max(0, -(-(len(tokens) + round(prompt)) // self.info.block_size) - len(table))

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

    def _system(self) -> str:
        """Words for two blocks or more, with the first story's: a word is a token at least."""
        num_words = min(_PROMPT_BLOCKS * self.info.block_size, self._room()) - len(STORIES[0].split())
        sentences = cycle(_SYSTEM)
        said = [next(sentences)]
        while sum(len(sentence.split()) for sentence in said) < num_words:
            said.append(next(sentences))
        return " ".join(said)

    def _reply_tokens(self) -> int:
        wanted = max(_MIN_REPLY, round(_REPLY_BLOCKS * self.info.block_size))
        return max(1, min(wanted, self._room()))

    def _room(self) -> int:
        return self._desk.context_limit // _SHARE_OF_CONTEXT


def _next_story(chat: ChatSession) -> str:
    num_asked = sum(turn.role == "user" for turn in chat.turns)
    return STORIES[num_asked % len(STORIES)]

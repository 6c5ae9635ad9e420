"""All chats of an engine and the commands they cause. Knows neither Textual nor the engine process: commands go to
a function, events are handed in.

A request is told apart by its id: events of a request that is over (stopped, closed, from an engine that died)
change nothing.
"""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from pagedchat.chat.formats.saved_chat import SavedChat, title_of
from pagedchat.chat.identity import new_id
from pagedchat.chat.resuming import asked_entries, fill, resume
from pagedchat.chat.sanitize import one_line
from pagedchat.chat.session import ChatSession, Notice
from pagedchat.chat.tree import shared_length
from pagedchat.chat.turns import Entry, Turn
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.events import (
    EngineDied,
    EngineEvent,
    EngineFailed,
    EngineReady,
    ReplyKept,
    RequestFailed,
    RequestFinished,
    RequestStarted,
    RequestWaits,
    TextDelta,
)
from pagedchat.service.commands import AnyCommand, Close, Focus, Fork, Generate, Stop
from pagedchat.view.chats.full_context import (
    is_nearly_full,
    request_for_summary,
    room_for_reply,
    summary_question,
    turns_to_leave_out,
)
from pagedchat.view.chats.likelihood import TokenPlace, begun_with, told_of
from pagedchat.view.chats.names import fork_name, name_from, next_name
from pagedchat.view.chats.reading import reading_settings
from pagedchat.view.key_names import with_keys
from pagedchat.view.options import UiOptions
from pagedchat.view.sentences.words import count

RequestEvent = RequestStarted | TextDelta | RequestFinished | RequestFailed | RequestWaits


_CLOSED_KNOWN = 16
"""Closed chats whose names are kept."""


class ChatDesk:
    """The chats of one engine in the order in which they are shown.

    Args:
        send: takes commands to the engine.
        options: what the command line said.
        numbers: of all chats on the screen; those of another engine are among them.
    """

    def __init__(
        self,
        send: Callable[[AnyCommand], None],
        options: UiOptions,
        numbers: Callable[[], Iterable[int]] | None = None,
    ) -> None:
        self._send = send
        self._options = options
        self._numbers = numbers or (lambda: (chat.session_id for chat in self.chats))
        self._next_request = 0
        self.chats: list[ChatSession] = []
        self._closed: dict[int, str] = {}
        """What those were called that were closed last."""
        self.context_limit = 0
        """Tokens one chat may hold; 0 until the engine is ready."""
        self.focused_id = 0
        self.on_change: Callable[[], None] = _nobody_listens
        """Called after everything that is more than another piece of text."""
        self.overrides = options.overrides
        """Sampling of chats that are yet to be made."""
        self.reading = reading_settings(options)
        """How their replies are drawn."""

    # --- reading ------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[ChatSession]:
        return iter(self.chats)

    def __len__(self) -> int:
        return len(self.chats)

    def get(self, session_id: int) -> ChatSession | None:
        """The chat of this number, if it is there."""
        return next((chat for chat in self.chats if chat.session_id == session_id), None)

    @property
    def num_busy(self) -> int:
        """Chats with a request queued or running."""
        return sum(chat.busy for chat in self.chats)

    @property
    def labels(self) -> dict[int, str]:
        """Session -> what it is called, or was: the engine tells of closed chats for a moment still."""
        return self._closed | {chat.session_id: chat.label for chat in self.chats}

    # --- what the user does -------------------------------------------------------------------------

    def new(self, name: str = "", session_id: int = 0) -> ChatSession:
        """A new, empty chat at the end; without a name it gets one from its first prompt, without a number a free
        one."""
        chat = ChatSession(
            session_id or self.free_id(), name=name, overrides=self.overrides, system=self._options.system
        )
        chat.when_full = self._options.when_full
        self.add(chat)
        return chat

    def add(self, chat: ChatSession) -> None:
        """A chat that was there before, at the end; nobody has its number."""
        self.chats.append(chat)
        self.on_change()

    def take_in(self, saved: "SavedChat") -> ChatSession:
        """A chat of a file, at the end; the engine hears of it with its next prompt."""
        chat = self.new(title_of(saved.title))
        chat.system = saved.system
        chat.overrides = SamplingOverrides(**saved.sampling)
        chat.fill(saved.entries, saved.unanswered)
        return chat

    def rename(self, chat: ChatSession, name: str) -> None:
        """Call a chat something else."""
        chat.name = one_line(name)
        chat.version += 1
        self.on_change()

    def submit(self, chat: ChatSession, prompt: str) -> None:
        """Send a prompt, or queue it while the chat is busy.

        Those that wait from an earlier run of the program are sent before it.
        """
        if chat.busy or chat.queue:
            chat.enqueue(prompt)
        if not chat.busy:
            self._submit(chat, chat.queue.popleft() if chat.queue else prompt)
        self.on_change()

    def submit_together(self, chats: Iterable[ChatSession], prompt: str) -> None:
        """One prompt to chats that are not busy and have the same turns: of their replies one stands in the end."""
        entry = Entry(Turn("user", prompt))
        for chat in chats:
            self._submit(chat, prompt, entry)
        self.on_change()

    def _submit(self, chat: ChatSession, prompt: str, entry: Entry | None = None) -> None:
        if not chat.name:
            chat.name = name_from(prompt)
        request_id = self._new_request()
        dropped = self._make_room(chat, prompt)
        chat.ask(prompt, request_id, entry)
        self._generate(chat, request_id)
        if dropped:
            chat.notify(Notice(
                f"The context was nearly full: the model no longer sees the oldest {count(dropped, 'turn')}.",
                "They stay here. /set full stop keeps the next ones.", error=False,
            ))  # fmt: skip

    def _make_room(self, chat: ChatSession, prompt: str) -> int:
        """Leave out the oldest turns where that was chosen and a reply would have no room; how many it were."""
        if chat.when_full != "drop" or not is_nearly_full(chat, prompt, self.context_limit):
            return 0
        dropped = turns_to_leave_out(chat, prompt, self.context_limit)
        chat.leave_out(dropped)
        return dropped

    def needs_successor(self, chat: ChatSession, prompt: str) -> bool:
        """Whether this prompt is to go on in a new chat, after a summary of this one."""
        chosen = chat.when_full == "summary" and not self._options.raw
        nearly_full = chosen and is_nearly_full(chat, prompt, self.context_limit)
        return nearly_full and not chat.busy and len(chat.entries) > chat.num_left_out

    def succeed(self, chat: ChatSession, prompt: str) -> ChatSession:
        """A new chat right after a full one: it sums that up, and then answers the prompt. The old one is kept."""
        child = ChatSession(
            self.free_id(), name=next_name(chat.name, self._names()), overrides=chat.overrides, system=chat.system
        )
        child.when_full, child.tokens_per_character = chat.when_full, chat.tokens_per_character
        self.chats.insert(self.chats.index(chat) + 1, child)
        question, request_id = summary_question(chat), self._new_request()
        child.summed_up, num_missing = request_for_summary(chat, question, self.context_limit)
        child.ask(question, request_id)
        child.enqueue(prompt)
        room = msgspec.structs.replace(chat.overrides, max_tokens=room_for_reply(self.context_limit))
        self._send(
            Generate(
                child.session_id, request_id, child.turns, room, self._options.raw, chat_id=self._kept_as(child)
            )
        )
        missing = f" Its oldest {count(num_missing, 'turn')} did not fit and are not in it." if num_missing else ""
        child.notify(Notice(
            f"The context of {one_line(chat.label)} is nearly full: here it is summed up, then answered.{missing}",
            error=False,
        ))  # fmt: skip
        return child

    def stop(self, chat: ChatSession) -> bool:
        """End the chat's reply; false if none is being written."""
        stopped = chat.stop()
        if stopped:
            self._send(Stop(chat.session_id))
            self.on_change()
        return stopped

    def regenerate(self, chat: ChatSession) -> bool:
        """Ask the last prompt again; false if that cannot be."""
        request_id = self._new_request()
        if not chat.regenerate(request_id):
            return False
        self._generate(chat, request_id)
        self.on_change()
        return True

    def search(self, chat: ChatSession, beam_width: int, prompt: str = "") -> bool:
        """Have a reply searched with so many beams: to this prompt, or another one to the last; false if there was
        none. The chat is not busy."""
        request_id = self._new_request()
        if prompt:
            chat.name = chat.name or name_from(prompt)
            chat.ask(prompt, request_id)
        elif not chat.regenerate(request_id):
            return False
        chat.beam_width = beam_width
        self._generate(chat, request_id, beam_width)
        self.on_change()
        return True

    def go_on(self, chat: ChatSession) -> bool:
        """Go on with a reply that was cut short; false if the last one was not."""
        request_id, turns = self._new_request(), chat.turns
        if not chat.go_on(request_id):
            return False
        self._send(
            Generate(
                chat.session_id, request_id, turns, chat.overrides, self._options.raw, chat_id=self._kept_as(chat)
            )
        )
        self.on_change()
        return True

    def fork(self, chat: ChatSession, after: ChatSession | None = None) -> ChatSession:
        """A second chat over the same blocks, shown right after its source, or after an earlier fork of it."""
        request_id = self._new_request()
        child = chat.fork(self.free_id(), request_id)
        child.name = fork_name(chat.name, self._names())
        self.chats.insert(self.chats.index(after or chat) + 1, child)
        self._send(Fork(chat.session_id, child.session_id, request_id, self._kept_as(child)))
        self.on_change()
        return child

    # --- branches -----------------------------------------------------------------------------------

    def fork_at(self, chat: ChatSession, num_prompts: int, after: ChatSession | None = None) -> ChatSession:
        """A second chat that has only the first so many prompts and their replies. The engine goes back in it when
        it is asked for more; until then it holds what the source holds, or nothing if that is being written on."""
        if num_prompts == chat.num_prompts:
            return self.fork(chat, after)
        child = chat.fork_at(self.free_id(), 2 * num_prompts)
        child.name = fork_name(chat.name, self._names())
        self.chats.insert(self.chats.index(after or chat) + 1, child)
        if num_prompts and not chat.busy:
            self._send(Fork(chat.session_id, child.session_id, self._new_request()))
        self.on_change()
        return child

    def fork_to(self, chat: ChatSession, turn_id: int) -> ChatSession:
        """A second chat that stands on a turn of the chat's tree, on a reply to it if it is a prompt."""
        path = chat.tree.path_to_reply(turn_id)
        child = self.fork_at(chat, shared_length(path, chat.entries) // 2)
        child.go_to(turn_id)
        self.on_change()
        return child

    def reply_besides(self, chat: ChatSession, after: ChatSession | None = None) -> ChatSession | None:
        """Another reply to the last prompt in a fork, drawn by chance of its own; None if there was no prompt, or a
        reply is being written."""
        if chat.busy or not chat.entries:
            return None
        child = self.fork(chat, after)
        child.overrides = msgspec.structs.replace(child.overrides, seed=None)
        self.regenerate(child)
        return child

    def fork_with_token(self, chat: ChatSession, place: TokenPlace, token_id: int) -> ChatSession:
        """A second chat that goes on from within a reply with another token in the place of one: all before it is
        shared, and the model goes on from there."""
        begun = begun_with(chat, place, token_id)
        request_id = self._new_request()
        child = chat.fork_in_reply(self.free_id(), request_id, place.turn, begun)
        child.name = fork_name(chat.name, self._names())
        if token_id == told_of(chat, place.turn)[place.token].token_ids[0]:
            child.overrides = msgspec.structs.replace(child.overrides, seed=None)  # else it would say the same
        self.chats.insert(self.chats.index(chat) + 1, child)
        self._send(Fork(chat.session_id, child.session_id, self._new_request()))
        self._send(Generate(
            child.session_id, request_id, child.turns, child.overrides, self._options.raw,
            [token.token_ids[0] for token in begun], b"".join(token.texts[0] for token in begun),
            chat_id=self._kept_as(child),
        ))  # fmt: skip
        self.on_change()
        return child

    def twins(self, chat: ChatSession, count: int, prompt: str) -> list[ChatSession]:
        """So many forks of a chat that is not busy, right behind it, whose replies are drawn by chance of their
        own: what is asked in all of them is computed once. A chat without a name gets that of the prompt."""
        chat.name = chat.name or name_from(prompt)
        twins: list[ChatSession] = []
        for _ in range(count):
            before = twins[-1] if twins else chat
            child = self.fork(chat, before) if chat.entries else self._another_empty(chat, before)
            child.overrides = msgspec.structs.replace(child.overrides, seed=None)
            twins.append(child)
        return twins

    def _another_empty(self, chat: ChatSession, after: ChatSession) -> ChatSession:
        """The fork of a chat of which the engine has not heard yet."""
        child = chat.fork_at(self.free_id(), 0)
        child.name = fork_name(chat.name, self._names())
        self.chats.insert(self.chats.index(after) + 1, child)
        self.on_change()
        return child

    def go_to(self, chat: ChatSession, turn_id: int) -> None:
        """Stand on another turn of the chat's tree."""
        if chat.go_to(turn_id):
            self.on_change()

    def go_through(self, chat: ChatSession, turn_id: int) -> None:
        """Stand where the branch through a turn was left."""
        if chat.go_through(turn_id):
            self.on_change()

    def take_back(self, chat: ChatSession, num_prompts: int) -> list[str]:
        """Go back behind the first so many prompts and replies; returns the prompts that came then. The branch that
        is left stays in the tree."""
        left = [entry.turn.text for entry in chat.entries[2 * num_prompts :] if entry.turn.role == "user"]
        if not chat.go_back(2 * num_prompts):
            return []
        self.on_change()
        return left

    def rivals(self, chat: ChatSession) -> list[ChatSession]:
        """Other chats of the same tree that answer the same last prompt otherwise and have gone no further."""
        if not chat.entries or chat.busy:
            return []
        mine = len(chat.entries) - 1
        return [
            other
            for other in self.chats
            if other is not chat and other.tree is chat.tree
            and len(other.entries) <= mine + 1 and shared_length(other.entries, chat.entries) >= mine
        ]  # fmt: skip

    def close(self, chat: ChatSession) -> None:
        """Drop a chat and its blocks."""
        self.chats.remove(chat)
        self._closed = dict([*self._closed.items(), (chat.session_id, chat.label)][-_CLOSED_KNOWN:])
        self._send(Close(chat.session_id))
        self.on_change()

    def hand_over(self, chat: ChatSession, other: "ChatDesk") -> None:
        """The chat is another engine's from now on, which hears of it with its next prompt. A reply that is being
        written ends here, with the text that it has."""
        chat.cut()
        chat.last_finished = None  # whose figures are of the engine that it leaves
        self.chats.remove(chat)
        self._send(Close(chat.session_id))
        other.add(chat)

    def focus(self, chat: ChatSession) -> None:
        """This chat goes first where the engine has a choice."""
        if chat.session_id != self.focused_id:
            self.focused_id = chat.session_id
            self._send(Focus(chat.session_id))

    # --- what the engine says -----------------------------------------------------------------------

    def apply(self, event: EngineEvent) -> None:
        """Fold one event into the chats it concerns."""
        match event:
            case RequestStarted() | TextDelta() | RequestFinished() | RequestFailed() | RequestWaits():
                self._apply_to_chat(event)
            case ReplyKept():
                self._take_back(event)
            case EngineReady() if event.server is not None:
                self.context_limit = event.max_model_len
            case EngineReady():
                self.context_limit = min(event.max_model_len, event.num_blocks * event.block_size)
            case EngineDied():
                self._interrupt_all(keep_queued=event.restarting)
            case EngineFailed():
                self._interrupt_all(keep_queued=False)
        if isinstance(event, RequestFinished | RequestFailed | EngineDied | EngineFailed | ReplyKept):
            self.on_change()

    def _apply_to_chat(self, event: RequestEvent) -> None:
        chat = next((chat for chat in self.chats if chat.request_id == event.request_id), None)
        match event:
            case _ if chat is None:
                return
            case RequestStarted():
                chat.start()
            case TextDelta():
                chat.append(event.text, event.num_tokens, event.told, event.num_told, anew=event.anew)
            case RequestWaits():
                chat.wait(event.message)
            case RequestFailed():
                chat.fail(event.message, event.hint)
            case RequestFinished(num_prompt_tokens=0, num_tokens=0):  # a fork of a request that was refused
                chat.return_queue()
                chat.finish("abort")
            case RequestFinished():
                chat.finish(event.reason, event)
                self._after_reply(chat, event)

    def _take_back(self, kept: ReplyKept) -> None:
        """A server has gone on with a chat of this desk, or of a terminal that is gone and whose chats are not kept
        here: that one gets a place, by its number if nobody has it."""
        chat = next((chat for chat in self.chats if chat.chat_id == kept.chat_id), None)
        if chat is not None and resume(chat, kept) != "apart":
            chat.dismiss()  # that it was reopened: its blocks are where they were
            return
        if not asked_entries(kept):
            return
        taken = kept.session_id in set(self._numbers())
        apart = ChatSession(self.free_id() if taken else kept.session_id, overrides=self._options.overrides)
        fill(apart, kept)
        apart.name = name_from(kept.turns[-1][1]) if chat is None else fork_name(chat.name, self._names())
        if chat is not None:
            apart.chat_id = apart.tree_id = new_id()
        self.add(apart)
        if taken:  # by another chat of the same number: the server's sequence is that one's from now on
            apart.append(kept.text, 0)
            apart.interrupt()

    def _after_reply(self, chat: ChatSession, event: RequestFinished) -> None:
        used = event.num_prompt_tokens + event.num_tokens
        if event.num_prompt_tokens:  # some servers do not tell
            chat.learn_size(used)
        if event.reason == "length" and self.context_limit and used >= self.context_limit:
            self._say_full(chat, used)
        elif chat.queue and self.needs_successor(chat, chat.queue[0]):  # which takes whoever shows chats
            chat.notify(Notice("The context is nearly full.", "Send again what was queued: a new chat goes on."))
            chat.return_queue()
        elif chat.queue:
            self._submit(chat, chat.queue.popleft())

    def _say_full(self, chat: ChatSession, used: int) -> None:
        """A reply has ended for want of room; what is queued goes on only where room will be made for it."""
        hints = {
            "stop": with_keys("Start a new chat with ^N, or type /set full drop or /set full summary."),
            "drop": "With the next prompt the oldest turns are left out.",
            "summary": "The next prompt goes on in a new chat, after a summary.",
        }
        if chat.when_full == "drop" and chat.queue:
            self.submit(chat, chat.queue.popleft())
            return
        chat.notify(Notice(f"The context is full: {used} of {self.context_limit} tokens.", hints[chat.when_full]))
        chat.return_queue()

    def _interrupt_all(self, *, keep_queued: bool) -> None:
        """Replies end where they are; what the engine had not begun with may wait, to be sent to the next one."""
        for chat in self.chats:
            if chat.busy and not (keep_queued and chat.state == "queued"):
                chat.interrupt()

    # --- parts --------------------------------------------------------------------------------------

    def _generate(self, chat: ChatSession, request_id: int, beam_width: int = 0) -> None:
        self._send(Generate(
            chat.session_id, request_id, chat.turns, chat.overrides, self._options.raw, beam_width=beam_width,
            chat_id=self._kept_as(chat),
        ))  # fmt: skip

    def _kept_as(self, chat: ChatSession) -> int:
        """By what a server is to know a chat of which it keeps the reply."""
        return chat.chat_id if self._options.attached else 0

    def _new_request(self) -> int:
        self._next_request += 1
        return self._next_request

    def _names(self) -> set[str]:
        return {chat.name for chat in self.chats}

    def free_id(self) -> int:
        """The lowest free number, so that Alt+1..9 go on reaching the chats of a long run."""
        taken = set(self._numbers())
        return next(number for number in range(1, len(taken) + 2) if number not in taken)


def _nobody_listens() -> None:
    """Until somebody does."""

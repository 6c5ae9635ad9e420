"""A conversation without a screen and without an engine: turns, the reply being written, prompts waiting.

It is told what was asked for and what came back, and keeps a consistent state; who sends the commands and who draws
the result is not known here. Invariant: user and assistant turns alternate, so any chat template can render them.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from pagedchat.cache_events import FinishReason
from pagedchat.chat.identity import new_id
from pagedchat.chat.open_reply import OpenReply
from pagedchat.chat.returned_prompts import ReturnedPrompts
from pagedchat.chat.tree import ROOT, ConversationTree, shared_length
from pagedchat.chat.turns import Ending, Entry, Turn
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.events import RequestFinished, ToldToken

SessionState = Literal["idle", "queued", "running", "stopped", "interrupted"]
"""queued: asked, not begun. stopped, interrupted: how the last reply ended, until the next prompt."""

WhenFull = Literal["stop", "drop", "summary"]
"""Of a full context. stop: the reply ends. drop: the oldest turns are not sent any more. summary: a new chat."""
_TOKENS_PER_CHARACTER = 0.35
"""Until an engine has counted some."""


class ForkOrigin(msgspec.Struct, frozen=True):
    """Where a fork comes from."""

    session_id: int
    label: str
    """The parent's label at the time of the fork."""
    num_entries: int
    """Entries taken over from the parent."""
    num_prompts: int
    """Of those, the user's: "at turn 2"."""
    chat_id: int = 0
    """The parent's `chat_id`."""


class Notice(msgspec.Struct, frozen=True):
    """One sentence about this chat, and what to do about it; shown until the next prompt."""

    message: str
    hint: str = ""
    error: bool = True


class ChatSession:
    """One chat. `version` grows with every change, so that a screen knows when to draw again."""

    beam_width = 0
    """Beams with which the reply that is being written is searched; 0: it is written token by token."""

    def __init__(
        self,
        session_id: int,
        *,
        name: str = "",
        overrides: SamplingOverrides | None = None,
        system: str | None = None,
    ) -> None:
        self.session_id = session_id
        self.chat_id = new_id()
        """By which the history knows it; numbers of closed chats are given away again, this one is not."""
        self.tree_id = self.chat_id
        """The same in all chats that were forked from one another: their turns are one tree."""
        self.tree = ConversationTree()
        """That tree; `entries` is a path in it."""
        self.kept = True
        """Whether it belongs into the history; what the program itself shows with it does not."""
        self.name = name
        """Given by the user or taken from the first prompt; empty before."""
        self.overrides = overrides or SamplingOverrides()
        self.system = system
        self.entries: list[Entry] = []
        self.state: SessionState = "idle"
        self.request_id: int | None = None
        """The running request; `None` when there is none."""
        self.stop_requested = False
        self.queue: deque[str] = deque()
        """Prompts to be sent when the reply is done, in order."""
        self.origin: ForkOrigin | None = None
        self.notice: Notice | None = None
        self.last_finished: RequestFinished | None = None
        """Figures of the last reply."""
        self.when_full: WhenFull = "stop"
        self.num_left_out = 0
        """Entries at the start that are no longer sent, for want of room; always whole pairs."""
        self.summed_up: list[Turn] = []
        """Turns of another chat, which this one's first prompt, the program's, is to sum up; sent with it alone."""
        self.tokens_per_character = _TOKENS_PER_CHARACTER
        """Of what was sent and written last, the template's words among it."""
        self.progress = ""
        """Why nothing comes of the running request; empty while there is nothing to say."""
        self.version = 0
        self._branch_of = (0, 0, ROOT)
        self._branch = (1, 1)
        """What `branch` found last, and where the chat stood then: titles ask again and again."""
        self._reply = OpenReply(turn_id=0)
        """That is being written."""
        self._prompts_back = ReturnedPrompts()

    # --- reading ------------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        """What people call it: `"1 tale"`."""
        return f"{self.session_id} {self.name or 'new chat'}"

    @property
    def busy(self) -> bool:
        """Whether a request is queued or running."""
        return self.request_id is not None

    @property
    def open_text(self) -> str:
        """What the running request has written so far."""
        return self._reply.text

    @property
    def num_open_tokens(self) -> int:
        """In how many tokens."""
        return self._reply.num_tokens

    @property
    def open_told(self) -> list[ToldToken]:
        """How likely these were, as far as that was asked for and told."""
        return self._reply.told

    @property
    def open_turn_id(self) -> int:
        """The `turn_id` of the reply that is being written."""
        return self._reply.turn_id

    @property
    def turns(self) -> list[Turn]:
        """What a request is about: the system prompt, if there is one, and all turns that are not left out."""
        if self.summed_up and len(self.entries) == 1:
            return [*self.summed_up, self.entries[0].turn]
        system = [Turn("system", self.system)] if self.system else []
        return system + [entry.turn for entry in self.entries[self.num_left_out :]]

    @property
    def shows_likelihood(self) -> bool:
        """Whether replies are told with, and coloured by, how sure the model was of their tokens."""
        return self.overrides.logprobs is not None

    @property
    def num_prompts(self) -> int:
        """Prompts that were asked on the way to here."""
        return sum(entry.turn.role == "user" for entry in self.entries)

    @property
    def can_go_on(self) -> bool:
        """Whether its last reply is not at its end and can be gone on with."""
        return not self.busy and bool(self.entries) and self.entries[-1].ending != "complete"

    @property
    def last_reply(self) -> str | None:
        """Text of the newest reply, the one being written included."""
        if self.open_text:
            return self.open_text
        replies = (entry.turn.text for entry in reversed(self.entries) if entry.turn.role == "assistant")
        return next(replies, None)

    @property
    def returned(self) -> str:
        """What `take_returned` will give."""
        return self._prompts_back.text

    def take_returned(self) -> str:
        """Prompts that were not answered and go back to be edited, once; empty if there are none."""
        return self._prompts_back.take()

    def take_taken_up(self) -> str:
        """A prompt that was given back to be edited before it was known to be answered, once; empty if none was."""
        return self._prompts_back.take_taken_up()

    # --- what the user does -------------------------------------------------------------------------

    def ask(self, prompt: str, request_id: int, entry: Entry | None = None) -> None:
        """A prompt is sent. The session must not be busy. `entry` is that of the prompt, where several chats have
        it in common."""
        self._add(entry or Entry(Turn("user", prompt)))
        self._begin(request_id)

    def enqueue(self, prompt: str) -> None:
        """A prompt is to be sent when the running reply is done."""
        self.queue.append(prompt)
        self.version += 1

    def unqueue(self) -> str | None:
        """Take back the prompt queued last, to edit it."""
        if not self.queue:
            return None
        self.version += 1
        return self.queue.pop()

    def return_prompt(self, prompt: str) -> None:
        """Give a prompt, or what was begun of one, back to be edited."""
        self._prompts_back.give_back(prompt)
        self.version += 1

    def return_queue(self) -> None:
        """Give all queued prompts back to be edited."""
        self._prompts_back.give_back(*self.queue)
        self.queue.clear()
        self.version += 1

    def clear_queue(self) -> None:
        """Drop all queued prompts."""
        self.queue.clear()
        self.version += 1

    def set_system(self, system: str | None) -> None:
        """The system prompt from the next request on; what the engine holds of the old one is then rewound."""
        self.system = system
        self.version += 1

    def set_sampling(self, field: str, value: float | str | None) -> None:
        """One value of `SamplingOverrides` from the next request on; `None` follows the model's own."""
        self.overrides = msgspec.structs.replace(self.overrides, **{field: value})
        self.version += 1

    def leave_out(self, num_turns: int) -> None:
        """So many more turns, the oldest, are no longer sent; they stay where they are."""
        self.num_left_out += num_turns
        self.version += 1

    def regenerate(self, request_id: int) -> bool:
        """Ask the last prompt again in place of its reply; false if there is nothing to ask again."""
        if self.busy or not self.entries:
            return False
        replaced = self.entries.pop()  # a reply, as is the last entry of every chat that is not busy
        self._begin(request_id, OpenReply(replaced))
        return True

    def take_up(self, prompt: Entry, request_id: int) -> None:
        """A request that this program has not sent is being answered; its prompt is not to be edited any more."""
        self._prompts_back.is_asked(prompt.turn.text)
        self._add(prompt)
        self._begin(request_id)

    def go_on_with(self, reply: Entry, request_id: int) -> None:
        """As above, of a request whose reply, the chat's last entry, is not all that there is."""
        self.entries.pop()
        self._prompts_back.is_asked(self.entries[-1].turn.text)
        self._begin(request_id, OpenReply(turn_id=reply.turn_id))
        self._reply.text = reply.turn.text

    def go_on(self, request_id: int) -> bool:
        """Go on with a reply that was cut short; false if the last one was not. What it has comes first."""
        if not self.can_go_on:
            return False
        self._begin(request_id, OpenReply.going_on(self.entries.pop()))
        return True

    def hear_anew(self, begun: str) -> None:
        """All that the running request has written comes again; `begun` is what it goes on with, or nothing."""
        self._reply.hear_anew(begun)

    def cut(self) -> None:
        """End the running request here and now, with the text that it has; nobody else will report its end."""
        if self.busy:
            self.return_queue()
            self._end("interrupted")

    def stop(self) -> bool:
        """End the running request; false if none runs. What it wrote is kept when its end is reported.

        A request that the engine has not begun ends here and now. Queued prompts are given back.
        """
        if not self.busy or self.stop_requested:
            return False
        self.stop_requested = True
        self.return_queue()
        if self.state == "queued":
            self._end("stopped")
        return True

    def fork(self, session_id: int, request_id: int) -> "ChatSession":
        """A second chat with the same turns; while a reply is being written it is written on in both."""
        child = self.fork_at(session_id, len(self.entries))
        if self.busy:
            child._begin(request_id, self._reply.forked())
            child.state = self.state
        return child

    def fork_in_reply(
        self, session_id: int, request_id: int, num_entries: int, begun: Sequence[ToldToken]
    ) -> "ChatSession":
        """A second chat with the first so many turns, the last of which is a prompt, whose reply begins with these
        tokens of the one that comes then and is written on."""
        child = self.fork_at(session_id, num_entries)
        child._begin(request_id)
        written = self.entries[num_entries].turn.text if num_entries < len(self.entries) else self.open_text
        child._reply.begin_with(written[: begun[-1].start], begun)
        return child

    def fork_at(self, session_id: int, num_entries: int) -> "ChatSession":
        """A second chat with the first so many turns, in which nothing is being written."""
        child = ChatSession(session_id, name=self.name, overrides=self.overrides, system=self.system)
        child.entries = self.entries[:num_entries]
        child.when_full, child.num_left_out = self.when_full, min(self.num_left_out, len(child.entries))
        child.tokens_per_character = self.tokens_per_character
        child.summed_up = self.summed_up
        child.tree_id, child.tree, child.kept = self.tree_id, self.tree, self.kept
        child.origin = ForkOrigin(self.session_id, self.label, len(child.entries), child.num_prompts, self.chat_id)
        return child

    def fill(self, entries: Iterable[Entry], unanswered: str = "") -> None:
        """Turns of before, as a file has them, in a chat that is new; a prompt without a reply is to be edited."""
        self.entries = list(entries)
        self.tree.add_path(self.entries)
        self._prompts_back.give_back(unanswered)
        self.version += 1

    # --- what the engine says -----------------------------------------------------------------------

    def start(self) -> None:
        """The engine has begun with the request and will tell all of its text from the start.

        A fork made in mid-reply already shows its source's text, in whose place it comes.
        """
        self.state = "running"
        self._reply.start()
        self.version += 1

    def wait(self, message: str) -> None:
        """Nothing comes, and why."""
        self.progress = message
        self.version += 1

    def append(
        self, text: str, num_tokens: int, told: Sequence[ToldToken] = (), num_told: int = 0, *, anew: bool = False
    ) -> None:
        """More text of the reply, or with `anew` all of it; and what is told of its tokens, the first so many left
        out."""
        self.state = "running"
        self._reply.append(text, num_tokens, told, num_told, anew=anew)
        self.progress = ""
        self.version += 1

    def finish(self, reason: FinishReason, figures: RequestFinished | None = None) -> None:
        """The reply is done."""
        endings: dict[FinishReason, Ending] = {
            "stop": "complete", "length": "length", "abort": "stopped", "error": "interrupted",
        }  # fmt: skip
        self.last_finished = figures
        self._end(endings[reason])

    def learn_size(self, num_tokens: int) -> None:
        """All that is sent of this chat had so many tokens with its last reply."""
        if self.summed_up and len(self.entries) <= 2:
            return  # they were another chat's
        characters = sum(len(turn.text) for turn in self.turns)
        if characters:
            self.tokens_per_character = num_tokens / characters

    def fail(self, message: str, hint: str) -> None:
        """The request was refused: its prompt goes back to be edited. Or an error ended it: its text stays."""
        self.return_queue()
        cut_short = bool(self.open_text)
        self._end("interrupted" if cut_short else "stopped")
        self.state = "interrupted" if cut_short else "idle"
        self.notice = Notice(message, hint)

    def interrupt(self) -> None:
        """The engine is gone in the middle of a reply; what was written is kept, nothing is sent by itself."""
        self.return_queue()
        self._end("interrupted")

    def notify(self, notice: Notice) -> None:
        """Say something about this chat."""
        self.notice = notice
        self.version += 1

    def dismiss(self) -> None:
        """Put the notice away."""
        self.notice = None
        self.version += 1

    # --- branches -----------------------------------------------------------------------------------

    @property
    def branch(self) -> tuple[int, int]:
        """Where the last turn that has siblings stands among them, from 1 on, and how many they are; (1, 1) if
        there is none."""
        where = self.tree.version, len(self.entries), self.entries[-1].turn_id if self.entries else ROOT
        if where != self._branch_of:
            place, siblings = self.tree.last_choice(self.entries)
            self._branch_of, self._branch = where, (place + 1, max(1, len(siblings)))
        return self._branch

    def go_to(self, turn_id: int) -> bool:
        """Stand on a reply of the tree, or on the one to a prompt. False while a reply is being written, or if
        nothing changes by it."""
        return self._stand_on(self.tree.path_to_reply(turn_id))

    def go_through(self, turn_id: int) -> bool:
        """Stand where the branch through this turn was left."""
        return self._stand_on(self.tree.path_through(turn_id))

    def go_back(self, num_entries: int) -> bool:
        """Stand behind the first so many turns, of which the last is a reply; the others stay in the tree."""
        return self._stand_on(self.entries[:num_entries])

    def sibling(self, step: int) -> int | None:
        """The neighbour of the last turn that has siblings: the one before (-1) or behind (1); None at the end."""
        place, siblings = self.tree.last_choice(self.entries)
        return siblings[place + step] if 0 <= place + step < len(siblings) else None

    def _stand_on(self, path: list[Entry]) -> bool:
        if self.busy or shared_length(path, self.entries) == max(len(path), len(self.entries)):
            return False
        if shared_length(path, self.entries) < self.num_left_out:
            self.num_left_out = 0  # what was left out is another beginning
        self.entries = path
        self.tree.add_path(path)  # which is how it was gone last
        self.state, self.last_finished, self.notice = "idle", None, None
        self.version += 1
        return True

    # --- parts --------------------------------------------------------------------------------------

    def _add(self, entry: Entry) -> None:
        self.tree.add(entry, self.entries[-1].turn_id if self.entries else ROOT)
        self.entries.append(entry)

    def _begin(self, request_id: int, reply: OpenReply | None = None) -> None:
        self.request_id = request_id
        self.state = "queued"
        self._reply = reply or OpenReply()
        self.stop_requested = False
        self.notice, self.progress, self.beam_width = None, "", 0
        self.version += 1

    def _end(self, ending: Ending) -> None:
        """Close the request. One that wrote nothing and was cut short leaves no trace but its prompt."""
        left = self._reply.entry(ending)
        if left is not None:
            self._add(left)
        elif self.entries and self.entries[-1].turn.role == "user":
            prompt = self.entries.pop().turn.text
            if self.entries or not self.summed_up:  # else nobody wrote it
                self._prompts_back.give_back(prompt)
        self.state = ending if ending in ("stopped", "interrupted") else "idle"
        self._reply, self.progress = OpenReply(turn_id=self._reply.turn_id), ""
        self.request_id, self.stop_requested = None, False
        self.version += 1

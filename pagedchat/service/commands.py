"""What the UI process asks of the engine process, and the link over which it asks.

A session's sequence has the session's id. A request of a program has sequences of its own, closed at its end, and
their numbers are the engine's own business.
"""

from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from pagedchat.chat.template import ChatPrompt
from pagedchat.chat.turns import Turn
from pagedchat.engine.sampling_params import SamplingOverrides, SamplingParams
from pagedchat.events import EngineEvent


class Command(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Base of all commands."""


class Generate(Command, frozen=True):
    """Answer the conversation `turns` (the last one is the user's, or an assistant's to be continued).

    The sequence is opened if it is new. What it already holds is kept as far as it agrees with the turns, rewound
    where it does not, and extended by the rest: so asking again, editing a turn and going on after a restart of the
    engine are all this one command.
    """

    session_id: int
    request_id: int
    turns: list[Turn]
    overrides: SamplingOverrides
    raw: bool = False
    """Text completion: the turns' texts are joined as they are, without a chat template."""
    begun: list[int] = []
    """Tokens with which the reply begins; the model goes on from there. What the sequence has of them already,
    after the same prompt, is not computed again."""
    begun_text: bytes | None = None
    """What they stand for, where they are those of a reply that another model may have written."""
    beam_width: int = 0
    """Search for the likeliest reply with so many beams; 0 draws it, token by token."""
    chat_id: int = 0
    """By which a history knows the chat, for a server that keeps replies; 0: nobody comes back to it."""


class Fork(Command, frozen=True):
    """A second session over the same blocks. While the source is generating, the fork goes on generating too, as
    request `request_id` of the new session with a seed of its own.

    That request tells its whole story: after its `RequestStarted` comes the source's reply so far as one
    `TextDelta`. The fork of a source that is not generating (any more) hears the same and then `RequestFinished`;
    without a reply to speak of, only `RequestFinished` with no tokens.
    """

    session_id: int
    new_session_id: int
    request_id: int
    chat_id: int = 0
    """Of the new session, as in `Generate`; 0 also where it is to go on from an earlier turn."""


class Stop(Command, frozen=True):
    """End the session's running request, keep what it has generated."""

    session_id: int


class Close(Command, frozen=True):
    """Drop the session's sequence."""

    session_id: int


class AddRequest(Command, frozen=True):
    """A request of a program, as `LLMEngine.add_request` takes it. `RequestOutputs` tell what it gets, or one
    `RequestRefused` that it gets nothing (more)."""

    request_id: int
    """No other request of programs under way has it."""
    prompt: str | list[int] | ChatPrompt
    """A text, its tokens, or a conversation."""
    params: SamplingParams | None = None
    """None: the model's own."""


class AbortRequests(Command, frozen=True):
    """End requests of programs now, without another event; those that are finished or unknown are passed over."""

    request_ids: list[int]


class Tokenize(Command, frozen=True):
    """The tokens of a text or a conversation: `Tokenized`, or `RequestRefused`."""

    request_id: int
    prompt: str | ChatPrompt
    add_special_tokens: bool = True
    """Whether those are put around a text that the tokenizer puts there."""


class Detokenize(Command, frozen=True):
    """The text of tokens, special ones included: `Detokenized`, or `RequestRefused`."""

    request_id: int
    token_ids: list[int]


class Coming(Command, frozen=True):
    """More requests of programs are on their way; see `gathering`."""

    num_requests: int
    """0: not any more."""


class Focus(Command, frozen=True):
    """The session that goes first when there is a choice."""

    session_id: int


class Pause(Command, frozen=True):
    """No further step until `Resume` or `StepOnce`."""


class Resume(Command, frozen=True):
    """Run on."""


class StepOnce(Command, frozen=True):
    """While paused: run this many steps."""

    count: int = 1


class SetPace(Command, frozen=True):
    """Slow motion: a step takes at least this many seconds; 0 runs as fast as can be."""

    seconds: float


class SetLimit(Command, frozen=True):
    """The pool uses at most this many blocks from now on; `None` lifts the limit."""

    num_blocks: int | None


class Pin(Command, frozen=True):
    """Do not evict this block; it must be full and findable."""

    block_id: int


class Unpin(Command, frozen=True):
    """Let this block be evicted again; `None` means every pinned one."""

    block_id: int | None = None


class Evict(Command, frozen=True):
    """Make a cached block free."""

    block_id: int


class FlushCache(Command, frozen=True):
    """Make every cached block free, except for those that are pinned."""


class TellCache(Command, frozen=True):
    """All of the cache at once: a `CacheKeyframe`, on which the next steps follow."""


class TellSequences(Command, frozen=True):
    """How long each sequence is, and what it holds: `SequencesTold`."""

    most: int
    """That are told one by one."""


class Shutdown(Command, frozen=True):
    """End the engine process."""


ProgramCommand = AddRequest | AbortRequests | Tokenize | Detokenize
"""What programs ask."""

AnyCommand = (
    ProgramCommand | Coming | Generate | Fork | Stop | Close | Focus | Pause | Resume | StepOnce | SetPace
    | SetLimit | Pin | Unpin | Evict | FlushCache | TellCache | TellSequences | Shutdown
)  # fmt: skip


class EngineLink(Protocol):
    """A running (or starting, or restarting) engine as the screens know it: commands in, events out.

    `client.EngineClient` is the real one.
    """

    async def start(self) -> None:
        """Start the engine; returns at once, progress comes as events."""
        ...

    async def restart(self) -> None:
        """Start it anew, be it running, hanging, given up or not able to start before."""
        ...

    async def switch(self, model: str) -> None:
        """Start it anew with another model: a hub id, a folder or a GGUF file. All other options stay; a tokenizer
        that was chosen for the old model does not."""
        ...

    def beside(self, model: str) -> "EngineLink":
        """Another engine with another model and the same options, not yet started, for the memory that is left."""
        ...

    def send(self, command: AnyCommand) -> None:
        """Queue a command; never blocks. Commands sent before the engine is ready wait for it."""
        ...

    def events(self) -> AsyncIterator[EngineEvent]:
        """All events from now on, in order; ends after `close`."""
        ...

    async def close(self) -> None:
        """End the engine process and wait for it (killed if it does not end within seconds)."""
        ...

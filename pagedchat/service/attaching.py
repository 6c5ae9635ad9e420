"""What a terminal and a server say to each other over a WebSocket, around commands and events. Knows no sockets.

The terminal begins with `Hello`; the server answers with `Welcome`, or with `Refused` and closes. From then on the
terminal says `Told` and in the end `Leave`, the server what the engine says, and now and then `Heard`. Messages are
frames as wire.py has them; a frame may lie in several WebSocket messages.

A *seat* is what a server has of a terminal: its chats, its requests, what it has heard of it. It is kept for a
while when the terminal is gone.
"""

from typing import Any, Literal

import msgspec

from pagedchat.events import EngineEvent
from pagedchat.service.commands import AnyCommand
from pagedchat.service.lean_steps import FullSteps
from pagedchat.service.wire import FrameReader

PROTOCOL = 1
"""Grows when one side would not understand the other any more."""
PATH = "/attach"
MAX_HELLO = 64 * 1024
MAX_TOLD = 8 * 1024**2
"""Bytes of a message to the server: a whole conversation, and no more than one."""
PIECE = 256 * 1024
"""Bytes of a WebSocket message to a terminal."""
MOST_CHATS = 1000
TAKEN_OVER = 4001
"""Close code: another connection has this terminal's seat."""


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Base of all that is neither command nor event."""


class Hello(Message, frozen=True):
    """A terminal would like to attach. Fields are only ever added at the end: any version can read the first."""

    version: int
    program: str = ""
    """Version of its pagedchat."""
    role: Literal["terminal", "onlooker"] = "terminal"
    key: str = ""
    """Remembered by a user's terminals: only with it can one have what another has left."""
    seat: str = ""
    """The one that it has, where it was attached before."""
    chats: list[tuple[int, int]] = []
    """Numbers of its chats, and by what a history knows them, 0 for new ones."""


class Welcome(Message, frozen=True):
    """The terminal is attached."""

    version: int
    program: str
    seat: str
    resumed: bool
    """Whether this is the seat that it had: its requests went on."""
    heard: int
    """The last command of this terminal that has been carried out."""


class Refused(Message, frozen=True):
    """It is not, or not any more."""

    message: str
    hint: str = ""


class Heard(Message, frozen=True):
    """Commands up to this one have been carried out."""

    serial: int


class Told(Message, frozen=True):
    """A command; said again after a connection was lost, with the same number."""

    serial: int
    """From 1 on, growing."""
    command: AnyCommand


class Leave(Message, frozen=True):
    """The terminal ends."""

    close_chats: bool
    """Whether its chats are to be closed; else they are kept for whoever comes."""


FromServer = Welcome | Refused | Heard | EngineEvent


def hello_reader() -> "FrameReader[Hello]":
    """Reads the first message of a terminal."""
    return FrameReader(msgspec.msgpack.Decoder(Hello), max_frame=MAX_HELLO)


def terminal_reader() -> "FrameReader[Told | Leave]":
    """Reads what a terminal says then."""
    decoder: Any = msgspec.msgpack.Decoder(Told | Leave)
    return FrameReader(decoder, max_frame=MAX_TOLD)


def server_reader() -> "FrameReader[FromServer]":
    """Reads what a server says."""
    decoder: Any = msgspec.msgpack.Decoder(FromServer)
    complete: Any = FullSteps()
    return FrameReader(decoder, complete)

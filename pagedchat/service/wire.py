"""Messages as bytes: a frame is the length of its body (4 bytes, little endian) and the body, msgpack.

Knows the types of messages, no sockets and no processes.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from pagedchat.config import EngineConfig
from pagedchat.errors import PagedChatError
from pagedchat.events import EngineEvent, Steps
from pagedchat.service.commands import AddRequest, AnyCommand, Command, Detokenize, Generate, Tokenize
from pagedchat.service.lean_steps import FullSteps, lean

T = TypeVar("T")

HEADER = struct.Struct("<I")
MAX_FRAME = 256 * 1024**2
"""Bytes; a longer frame is a sign of garbage on the line, not of a long chat."""


class WireError(RuntimeError):
    """What came in is not a message: the other end is broken or of another version. Always a defect."""


class NotSendableError(PagedChatError):
    """A message that has no bytes: a number, a text or a length that the wire has no place for."""


class Configure(Command, frozen=True):
    """The first message to an engine process, sent by the client itself."""

    config: EngineConfig
    follows_steps: bool = True
    """Whether anybody wants to hear of steps; replies are told in any case."""


Inbound = Configure | AnyCommand
"""What an engine process may be sent."""


class FrameWriter:
    """Encodes messages into one buffer, used again for each."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._buffer = bytearray(HEADER.size)

    def frame(self, message: EngineEvent | Inbound | msgspec.Struct) -> bytearray:
        """The message's frame; valid until the next call.

        Raises:
            NotSendableError: a number of more than 64 bits, text that is none, or far too much of it.
        """
        lean_message = lean(message) if type(message) is Steps else message
        try:
            self._encoder.encode_into(lean_message, self._buffer, HEADER.size)
        except (OverflowError, ValueError, TypeError, RecursionError) as error:
            raise _not_sendable(message, _reason(error)) from error
        length = len(self._buffer) - HEADER.size
        if length > MAX_FRAME:
            self._buffer = bytearray(HEADER.size)  # nobody needs that much again
            raise _not_sendable(message, f"it takes {length} bytes, and at most {MAX_FRAME} fit")
        HEADER.pack_into(self._buffer, 0, length)
        return self._buffer


def _not_sendable(message: msgspec.Struct, reason: str) -> NotSendableError:
    match message:
        case Configure():
            what, hint = "The engine's settings", "Start with other settings."
        case Generate() | AddRequest() | Tokenize() | Detokenize():
            what, hint = "The prompt and its settings", "Ask again with other settings, or with other text."
        case _:
            what, hint = f"“{type(message).__name__}”", ""
    return NotSendableError(f"{what} cannot be passed on: {reason}.", hint)


def _reason(error: Exception) -> str:
    match error:
        case OverflowError():
            return "a number has more than 64 bits"
        case UnicodeError():
            return "some characters are no text"
        case RecursionError():
            return "it is nested too deeply"
    return str(error).rstrip(".")


class FrameReader(Generic[T]):
    """Puts frames together again from pieces of any length.

    Args:
        decoder: from the body of a frame to a message.
        complete: makes a message whole that was sent without what the ones before it said; raises `ValueError`.
        max_frame: bytes of a body that makes sense.
    """

    def __init__(
        self,
        decoder: "msgspec.msgpack.Decoder[T]",
        complete: Callable[[T], T] | None = None,
        max_frame: int = MAX_FRAME,
    ) -> None:
        self._decoder = decoder
        self._complete = complete
        self._max_frame = max_frame
        self._buffer = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[T]:
        """The messages that `data` completes.

        Raises:
            WireError: not a frame, or not a message.
        """
        self._buffer += data
        start = 0
        try:
            while (end := self._end_of_frame(start)) is not None:
                body, start = memoryview(self._buffer)[start + HEADER.size : end], end
                with body:
                    message = self._decode(body)
                yield message
        finally:
            del self._buffer[:start]

    def finish(self) -> None:
        """Nothing more will come.

        Raises:
            WireError: in the middle of a frame.
        """
        if self._buffer:
            raise WireError(f"The connection ended inside a message, {len(self._buffer)} bytes into its frame.")

    def _end_of_frame(self, start: int) -> int | None:
        """`None` while the frame at `start` is incomplete."""
        if len(self._buffer) < start + HEADER.size:
            return None
        (length,) = HEADER.unpack_from(self._buffer, start)
        if length > self._max_frame:
            raise WireError(f"A frame says that it has {length} bytes; at most {self._max_frame} make sense.")
        end: int = start + HEADER.size + length
        return end if end <= len(self._buffer) else None

    def _decode(self, body: memoryview) -> T:
        try:
            message = self._decoder.decode(body)
            return message if self._complete is None else self._complete(message)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:  # no UTF-8, nested without end
            raise WireError(f"A frame of {len(body)} bytes is not a message: {error}") from error


def event_reader() -> FrameReader[EngineEvent]:
    """Reads what an engine process says."""
    decoder: Any = msgspec.msgpack.Decoder(EngineEvent)
    return FrameReader(decoder, FullSteps())


def command_reader() -> FrameReader[Inbound]:
    """Reads what an engine process is told."""
    decoder: Any = msgspec.msgpack.Decoder(Inbound)
    return FrameReader(decoder)

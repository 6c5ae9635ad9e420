"""Events of a stream, as `text/event-stream` has them. One value is one event."""

import msgspec

DONE = b"data: [DONE]\n\n"
"""The last one of completions and chats."""
_encode = msgspec.json.Encoder().encode


def event(value: msgspec.Struct) -> bytes:
    """An event without a name."""
    return b"data: " + _encode(value) + b"\n\n"


def named_event(name: str, value: object) -> bytes:
    """One with a name."""
    return b"event: " + name.encode() + b"\ndata: " + _encode(value) + b"\n\n"

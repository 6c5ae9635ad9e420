"""What a chat consists of: turns, and how each of them ended."""

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from pagedchat.chat.identity import new_id
from pagedchat.events import ToldToken

Role = Literal["system", "user", "assistant"]


class Turn(msgspec.Struct, frozen=True, array_like=True):
    """One entry of a chat."""

    role: Role
    text: str


Ending = Literal["complete", "stopped", "interrupted", "length"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A turn and how it ended (a user's turn is always complete)."""

    turn: Turn
    ending: Ending = "complete"
    turn_id: int = field(default_factory=new_id, compare=False)
    """By which the history knows it. Forks share their entries, and so the turns that it keeps."""
    told: tuple[ToldToken, ...] = field(default=(), compare=False, repr=False)
    """How likely each token of a reply was, where that was asked for; no history keeps it."""

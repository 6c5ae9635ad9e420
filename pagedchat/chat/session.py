"""A conversation without a screen: turns in order."""

from typing import Literal

import msgspec

Role = Literal["system", "user", "assistant"]


class Turn(msgspec.Struct, frozen=True, array_like=True):
    """One entry of a chat."""

    role: Role
    text: str

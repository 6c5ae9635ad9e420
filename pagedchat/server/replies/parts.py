"""What a reply is made of: text, thoughts, and calls of tools."""

from typing import NamedTuple


class Text(NamedTuple):
    """What the user is told."""

    text: str


class Thought(NamedTuple):
    """What the model thinks before it answers."""

    text: str


class CallBegun(NamedTuple):
    """The model calls a tool; its arguments follow."""

    name: str


class Arguments(NamedTuple):
    """More of the arguments of the call that was begun last: JSON."""

    text: str


Part = Text | Thought | CallBegun | Arguments

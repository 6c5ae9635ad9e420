"""What a server is asked: a chat's turns and sampling as arguments of the official client."""

from typing import Any, NamedTuple

from pagedchat.remote.openai.kinds import ServerKind
from pagedchat.service.commands import Generate

_STANDARD = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "max_tokens", "stop", "seed")
_LOCAL = frozenset({"speculate"})
"""Of the engine here alone; no reply depends on it."""


class Asked(NamedTuple):
    """A request, and what could not be put into it."""

    raw: bool
    """Whether it is a text to be gone on with, not a chat."""
    arguments: dict[str, Any]
    left_out: list[str]
    """Sampling fields that the server is not known to take."""
    continues: bool
    """Whether the server is known to go on with a part of its reply."""

    def without_usage(self) -> "Asked":
        """The same for a server that does not know of counting tokens in a stream."""
        rest = {name: value for name, value in self.arguments.items() if name != "stream_options"}
        return self._replace(arguments=rest)


def asked(command: Generate, model: str, kind: ServerKind, seed: int | None = None) -> Asked:
    """The request for a command.

    Args:
        command: what the chat wants.
        model: by the server's name for it.
        kind: what the server runs.
        seed: of chats that have none of their own.
    """
    chosen = command.overrides.set_values()
    if seed is not None:
        chosen.setdefault("seed", seed)
    body = {kind.extras[name]: value for name, value in chosen.items() if name in kind.extras}
    continues = bool(command.turns) and command.turns[-1].role == "assistant"
    if continues and not command.raw:
        body |= kind.going_on or {}
    usage = {"include_usage": True} | ({"continuous_usage_stats": True} if kind.counts_each else {})
    arguments: dict[str, Any] = {
        "model": model,
        "stream": True,
        "stream_options": usage,
        **{name: chosen[name] for name in _STANDARD if name in chosen},
    }
    if command.raw:
        arguments["prompt"] = "".join(turn.text for turn in command.turns)
    else:
        arguments["messages"] = [{"role": turn.role, "content": turn.text} for turn in command.turns]
    if body:
        arguments["extra_body"] = body
    known = {*_STANDARD, *kind.extras, *_LOCAL}
    left_out = [name for name in chosen if name not in known]
    return Asked(command.raw, arguments, left_out, command.raw or kind.continues)

"""What the user has set in an engine process, to be set in the next one too. Knows commands and no process."""

from pagedchat.service.commands import AnyCommand, Focus, Pause, Resume, SetLimit, SetPace

_KINDS: dict[type[AnyCommand], type[AnyCommand]] = {
    Pause: Pause, Resume: Pause, SetPace: SetPace, SetLimit: SetLimit, Focus: Focus,
}  # fmt: skip
"""A command -> the setting that it changes, in the order in which they are told: what is paused stays as it is."""


class Settings:
    """The last of each kind. Pins are none of them: the blocks that they are about end with their engine."""

    def __init__(self) -> None:
        self._last: dict[type[AnyCommand], AnyCommand] = {}

    def take(self, command: AnyCommand) -> bool:
        """Remember a command that sets something; false for one that does not."""
        kind = _KINDS.get(type(command))
        if kind is not None:
            self._last[kind] = command
        return kind is not None

    def commands(self) -> list[AnyCommand]:
        """What a new engine process, which runs as fast as it can on all of its blocks, is to be told."""
        in_order = (self._last.get(kind) for kind in dict.fromkeys(_KINDS.values()))
        return [command for command in in_order if command is not None and not _is_default(command)]


def _is_default(command: AnyCommand) -> bool:
    return isinstance(command, Resume) or command in (SetPace(0.0), SetLimit(None))

"""What the next engine process is told when one dies: what the user has set in it, and requests that it had not
begun with. Knows commands and no process.
"""

from pagedchat.events import EngineEvent, RequestFailed, RequestFinished, RequestStarted
from pagedchat.service.commands import (
    AnyCommand,
    Close,
    Focus,
    Fork,
    Generate,
    Pause,
    Resume,
    SetLimit,
    SetPace,
    Stop,
)

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


class Unanswered:
    """Requests in the order in which they were sent."""

    def __init__(self) -> None:
        self._commands: dict[int, Generate | Fork] = {}

    def sent(self, command: AnyCommand) -> None:
        """The process was sent a command; a session that is stopped or closed waits for nothing any more."""
        match command:
            case Generate() | Fork():
                self._commands[command.request_id] = command
            case Stop(session_id) | Close(session_id):
                self._drop(session_id)

    def heard(self, event: EngineEvent) -> None:
        """The process said something."""
        match event:
            case RequestStarted() | RequestFinished() | RequestFailed():
                self._commands.pop(event.request_id, None)

    def take(self) -> list[Generate | Fork]:
        """All of them; there are none left then."""
        commands, self._commands = list(self._commands.values()), {}
        return commands

    def _drop(self, session_id: int) -> None:
        for request_id, command in list(self._commands.items()):
            if _asker(command) == session_id:
                del self._commands[request_id]


def _asker(command: Generate | Fork) -> int:
    """The session that waits for the reply."""
    return command.session_id if isinstance(command, Generate) else command.new_session_id

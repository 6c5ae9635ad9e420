"""Which requests an engine process was sent and has not begun with: if it dies, the next one gets them."""

from pagedchat.events import EngineEvent, RequestFailed, RequestFinished, RequestStarted
from pagedchat.service.commands import AnyCommand, Close, Fork, Generate, Stop


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

"""Sessions and requests of many clients under numbers of one engine's, and back. Knows no links and no queues."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from pagedchat.cache_events import CHILDREN, FIRST_OF_PROGRAMS
from pagedchat.errors import InvalidValueError
from pagedchat.service.commands import AbortRequests, AddRequest, AnyCommand, Focus

MOST_NUMBER = (1 << 30) - 1
"""Sessions and requests of a client have numbers from 1 to this."""


@dataclass(slots=True)
class Asked:
    """A request that is not over."""

    client: int
    session_id: int
    request_id: int
    """As the client counts."""
    seq_id: int
    """The session, as the engine counts."""
    of_a_program: bool = False
    """Whether whoever asked ends it where the engine does not, by `AbortRequests`."""
    begun: bool = False
    """Whether the engine has said anything of it: if it dies, that is lost."""


class Numbers:
    """Who is who.

    The engine's numbers are never given twice. A session's outlives its `Close` until the engine has told its end:
    events of it may be on their way.
    """

    def __init__(self) -> None:
        self._last_session = self._last_request = 0
        self._sessions: dict[tuple[int, int], int] = {}
        """Client and its number -> the engine's."""
        self.own: dict[int, dict[int, int]] = {}
        """Client -> the engine's numbers of its sequences -> its own."""
        self.owners: dict[int, int] = {}
        """The engine's number of a sequence -> client."""
        self.asked: dict[int, Asked] = {}
        """Requests that are not over, by the engine's number."""
        self._closing: set[int] = set()

    # --- commands -----------------------------------------------------------------------------------

    def told(self, client: int, command: AnyCommand) -> Any:
        """The command as the engine is to hear it; None where it is about a session that there is not.

        Raises:
            InvalidValueError: a number out of range.
        """
        names = command.__struct_fields__
        changes: dict[str, int] = {}
        opens = "request_id" in names or isinstance(command, Focus)  # these may be about a new session
        for name in ("session_id", "new_session_id"):
            if name in names:
                number = self._session(client, getattr(command, name), new=opens)
                if number is None:
                    return None
                changes[name] = number
        if "request_id" in names:
            asker = "new_session_id" if "new_session_id" in names else "session_id"
            changes["request_id"] = self._request(
                client, getattr(command, asker, 0), command, changes.get(asker, 0)
            )
        if isinstance(command, AbortRequests):
            return AbortRequests(self._aborted(client, command.request_ids))
        return msgspec.structs.replace(command, **changes)

    def close(self, client: int, session_id: int) -> None:
        """The session's `Close` was sent: its number is free for another."""
        seq_id = self._sessions.pop((client, session_id), None)
        if seq_id is not None:
            self._closing.add(seq_id)

    def sessions_of(self, client: int) -> list[int]:
        """Its sessions, by its own numbers."""
        return [session_id for owner, session_id in self._sessions if owner == client]

    def of_programs(self, client: int) -> list[int]:
        """Requests of a client that have no session, by the engine's numbers."""
        return [number for number, asked in self.asked.items() if asked.client == client and not asked.seq_id]

    def renumber(self, client: int, sessions: Mapping[int, int], requests: Mapping[int, int]) -> None:
        """Sessions and requests of a client are called otherwise from now on: old number -> new one, of all."""
        own = self.own[client]
        moved = {new: self._sessions.pop((client, old), None) for old, new in sessions.items()}
        for number, seq_id in moved.items():
            if seq_id is not None:
                self._sessions[client, number] = seq_id
                own[seq_id] = number
        for asked in self.asked.values():
            if asked.client == client:
                asked.session_id = sessions.get(asked.session_id, asked.session_id)
                asked.request_id = requests.get(asked.request_id, asked.request_id)

    def _session(self, client: int, session_id: int, *, new: bool) -> int | None:
        check_number("A session's number", session_id)
        seq_id = self._sessions.get((client, session_id))
        if seq_id is None and new:
            if self._last_session + 1 >= FIRST_OF_PROGRAMS:
                raise InvalidValueError("This server has had all the chats that it can number.", "Start it anew.")
            self._last_session += 1
            seq_id = self._sessions[client, session_id] = self._last_session
            self._own(client, seq_id, session_id)
        return seq_id

    def _request(self, client: int, session_id: int, command: Any, seq_id: int) -> int:
        check_number("A request's number", command.request_id)
        self._last_request += 1
        of_a_program = isinstance(command, AddRequest)
        self.asked[self._last_request] = Asked(client, session_id, command.request_id, seq_id, of_a_program)
        return self._last_request

    def _aborted(self, client: int, request_ids: list[int]) -> list[int]:
        """Requests of a program that are over now, of which nothing more is told."""
        wanted = set(request_ids)
        numbers = [number for number in self.of_programs(client) if self.asked[number].request_id in wanted]
        for number in numbers:
            del self.asked[number]
        return numbers

    def _own(self, client: int, seq_id: int, number: int) -> None:
        self.own.setdefault(client, {})[seq_id] = number
        self.owners[seq_id] = client

    # --- what the engine says -----------------------------------------------------------------------

    def made_of(self, seq_id: int, child_id: int) -> None:
        """The engine made a sequence of another, or for it; one of which no command spoke belongs to the same
        client."""
        client = self.owners.get(seq_id)
        if client is not None and child_id not in self.owners:
            self._own(client, child_id, CHILDREN + child_id)
            self._closing.add(child_id)  # it ends by itself

    def over(self, request_id: int) -> None:
        """A request is."""
        self.asked.pop(request_id, None)

    def closed(self, seq_id: int) -> None:
        """A sequence is; a session may go on with another."""
        if seq_id in self._closing:
            self._forget(seq_id)

    def lost(self) -> None:
        """The engine is gone, with all sequences, and with the requests that it had begun with."""
        over = [
            number
            for number, asked in self.asked.items()
            if not asked.of_a_program and (asked.begun or not asked.seq_id or asked.seq_id in self._closing)
        ]
        for number in over:
            del self.asked[number]
        self.settle(lambda _: False)

    def settle(self, exists: Callable[[int], bool]) -> None:
        """Closed sessions that have no sequence and wait for none are forgotten."""
        if self._closing:
            waiting = {asked.seq_id for asked in self.asked.values()}
            for seq_id in [seq_id for seq_id in self._closing if seq_id not in waiting and not exists(seq_id)]:
                self._forget(seq_id)

    def leave(self, client: int) -> None:
        """A client is gone, all of its sessions closed: what is left of it is nobody's."""
        for seq_id in self.own.pop(client, {}):
            self.owners.pop(seq_id, None)
            self._closing.discard(seq_id)
        for key in [key for key in self._sessions if key[0] == client]:
            del self._sessions[key]
        for number in [number for number, asked in self.asked.items() if asked.client == client]:
            del self.asked[number]

    def _forget(self, seq_id: int) -> None:
        self._closing.discard(seq_id)
        client = self.owners.pop(seq_id, None)
        if client is not None:
            self.own.get(client, {}).pop(seq_id, None)


def check_number(what: str, number: int) -> int:
    """A number of a client's.

    Raises:
        InvalidValueError: it is out of range.
    """
    if not 1 <= number <= MOST_NUMBER:
        raise InvalidValueError(f"{what} is {number}.", f"It must be a whole number from 1 to {MOST_NUMBER}.")
    return number

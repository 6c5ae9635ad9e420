"""Seats: what the server has of each terminal, kept for a while when that is gone. Knows the hub, no sockets.

A terminal that comes back to its own seat goes on where it was. A new one takes over what one of the same user has
left behind, by the chats that both know; a seat that somebody sits on is nobody else's.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pagedchat.errors import PagedChatError
from pagedchat.server.hub import EngineHub
from pagedchat.server.hub_client import HubClient
from pagedchat.server.kept import KeptReplies
from pagedchat.service.attaching import Hello
from pagedchat.service.commands import AnyCommand, Close, Fork, Generate

KEEP_SECONDS = 3600.0
"""For which chats of a terminal that is gone are kept."""
MOST_SEATS = 32
MOST_SESSIONS = 200
"""Of one terminal."""


@dataclass(slots=True, eq=False)
class Seat:
    """One terminal's place."""

    name: str
    """A secret of the terminal and the server."""
    key: str
    """Of the user's terminals."""
    client: HubClient
    kept: KeptReplies = field(default_factory=KeptReplies)
    heard: int = 0
    """The last command that was carried out."""
    drop: Callable[[], None] | None = None
    """Ends the connection of the terminal that sits here; None while none does."""
    end: asyncio.TimerHandle | None = None
    """When it is given up."""
    left: int = 0
    """The later it was left, the larger."""

    def take(self, serial: int, command: AnyCommand) -> None:
        """A command of the terminal; one that has been heard before is passed over."""
        if serial <= self.heard:
            return
        self.heard = serial
        self.kept.asked(command)
        if isinstance(command, Generate | Fork) and self.client.num_sessions >= MOST_SESSIONS:
            self.client.refuse(command, f"There are {MOST_SESSIONS} chats already.", "Close some of them.")
        else:
            self.client.send(command)


class Seats:
    """All of them.

    Args:
        hub: the engine.
        keep_seconds: for which a seat without a terminal is kept.
        most: seats, those without a terminal among them.
    """

    def __init__(self, hub: EngineHub, keep_seconds: float = KEEP_SECONDS, most: int = MOST_SEATS) -> None:
        self._hub = hub
        self._keep_seconds = keep_seconds
        self._most = most
        self._seats: dict[str, Seat] = {}
        self._num_left = 0

    def __len__(self) -> int:
        return len(self._seats)

    @property
    def num_attached(self) -> int:
        """Seats that somebody sits on."""
        return sum(seat.drop is not None for seat in self._seats.values())

    def take(self, hello: Hello, drop: Callable[[], None]) -> tuple[Seat, bool]:
        """A seat for a terminal, and whether it had it before.

        Args:
            hello: what it says.
            drop: ends its connection.

        Raises:
            PagedChatError: there is none.
        """
        own = self._seats.get(hello.seat)
        if own is not None and secrets.compare_digest(own.key.encode(), hello.key.encode()):
            if own.drop is not None:
                own.drop()
            return self._sit(own, drop), True
        left = self._left_by(hello)
        seat = self._new(hello.key) if left is None else self._take_over(left, hello.chats)
        return self._sit(seat, drop), False

    def leave(self, seat: Seat, drop: Callable[[], None], *, close_chats: bool = False) -> None:
        """The terminal with this connection is gone; one that has lost its seat to another leaves nothing."""
        if seat.drop is not drop:
            return
        seat.drop = None
        if close_chats or self._keep_seconds <= 0 or not seat.kept.sessions:
            self.give_up(seat)
            return
        seat.client.silence()
        self._num_left += 1
        seat.left = self._num_left
        seat.end = asyncio.get_running_loop().call_later(self._keep_seconds, self.give_up, seat)

    def give_up(self, seat: Seat) -> None:
        """Close its chats."""
        if seat.end is not None:
            seat.end.cancel()
        self._seats.pop(seat.name, None)
        self._hub.leave(seat.client)

    def close(self) -> None:
        """Give up all of them."""
        for seat in list(self._seats.values()):
            self.give_up(seat)

    # --- which --------------------------------------------------------------------------------------

    def _left_by(self, hello: Hello) -> Seat | None:
        """Of the same user's seats without a terminal the one with most of its chats, else that left last."""
        known = {chat_id for _, chat_id in hello.chats if chat_id}
        left = [
            seat
            for seat in self._seats.values()
            if seat.drop is None and hello.key and secrets.compare_digest(seat.key.encode(), hello.key.encode())
        ]
        return max(left, key=lambda seat: (len(known & set(seat.kept.sessions.values())), seat.left), default=None)

    def _new(self, key: str) -> Seat:
        if len(self._seats) >= self._most:
            left = [seat for seat in self._seats.values() if seat.drop is None]
            if not left:
                raise PagedChatError(
                    f"{self._most} terminals are attached already.", "Leave one of them, and try again."
                )
            self.give_up(min(left, key=lambda seat: seat.left))
        seat = Seat(secrets.token_urlsafe(16), key, self._hub.client("terminal"))
        seat.client.on_event = seat.kept.heard
        self._seats[seat.name] = seat
        return seat

    def _sit(self, seat: Seat, drop: Callable[[], None]) -> Seat:
        if seat.end is not None:
            seat.end.cancel()
        seat.drop, seat.end = drop, None
        seat.client.listen(seat.kept.story())
        return seat

    def _take_over(self, seat: Seat, chats: Sequence[tuple[int, int]]) -> Seat:
        """Give its sessions the numbers that the new terminal has for their chats."""
        del self._seats[seat.name]
        seat.name, seat.heard = secrets.token_urlsafe(16), 0
        self._seats[seat.name] = seat
        numbers = {chat_id: number for number, chat_id in chats if chat_id}
        free = max((number for number, _ in chats), default=0)
        kept, sessions = seat.kept.sessions, {}
        for session_id in self._hub.numbers.sessions_of(seat.client.key):
            if session_id not in kept:  # of which no history knows anything
                seat.client.send(Close(session_id))
        for session_id, chat_id in kept.items():
            sessions[session_id] = numbers.pop(chat_id, 0)
            if not sessions[session_id]:
                sessions[session_id] = free = free + 1
        requests = seat.kept.renumber(sessions)
        self._hub.numbers.renumber(seat.client.key, sessions, requests)
        return seat

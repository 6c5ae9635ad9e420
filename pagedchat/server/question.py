"""What a server asks its engine about its sequences, one question at a time however many want to know. Knows no
clients.
"""

import asyncio
from collections.abc import Callable

from pagedchat.events import SequencesTold
from pagedchat.service.commands import TellSequences


class SequencesQuestion:
    """Asked of one engine.

    Args:
        send: to the engine.
        most: sequences that are told one by one.
    """

    def __init__(self, send: Callable[[TellSequences], None], most: int) -> None:
        self._send = send
        self._most = most
        self._answer: asyncio.Future[SequencesTold | None] | None = None
        """None while nobody waits for one."""

    async def ask(self, seconds: float) -> SequencesTold | None:
        """All sequences as they are now.

        Args:
            seconds: for which a step that runs is waited for.

        Returns:
            None where the engine does not say so in time, or ends.
        """
        if self._answer is None:
            self._answer = asyncio.get_running_loop().create_future()
            self._send(TellSequences(self._most))
        try:
            return await asyncio.wait_for(asyncio.shield(self._answer), seconds)
        except TimeoutError:
            return None

    def hear(self, told: SequencesTold | None) -> None:
        """The engine answers, or is gone."""
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(told)

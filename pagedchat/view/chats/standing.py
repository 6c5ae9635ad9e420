"""How a chat stands: what it is doing by its own account, and whether its sequence waits in the engine, and why.

The request of a chat runs from the moment at which the engine has its prompt; its sequence may still have to wait
for blocks, or wait for them again. Knows chats and the folded state; no screen.
"""

from typing import Literal, NamedTuple

from pagedchat.chat.session import ChatSession, SessionState
from pagedchat.view.sentences.waiting import cure_words, held_words
from pagedchat.view.state.engine import EngineState

PAUSED = "the scheduler is paused"


class Standing(NamedTuple):
    """One word, and for a chat that waits the reason."""

    state: SessionState | Literal["waiting"]
    why: str = ""
    cure: str = ""
    """`more with /limit off`: what the user can do about it, if anything."""

    @property
    def words(self) -> str:
        """`waiting: needs 24 blocks, the limit is 1`."""
        return f"{self.state}: {self.why}" if self.why else self.state


def standing(chat: ChatSession, engine: EngineState) -> Standing:
    """As of the last report."""
    sequence = engine.mirror.sequences.get(chat.session_id)
    if chat.state != "running" or sequence is None or sequence.status not in ("waiting", "swapped"):
        return Standing(chat.state)
    if engine.paused:
        return Standing("waiting", PAUSED)
    return Standing("waiting", held_words(sequence.held), cure_words(sequence.held, engine.mirror))

"""What each way to draft keeps of a request, and what it plans for it in a step.

Knows counts, lengths and token ids; no model, no blocks, no seconds.
"""

from dataclasses import dataclass, field
from typing import TypeVar

from pagedchat.engine.sequence import Sequence

FIRST_CHANCE = 0.85
"""That a drafted token is accepted, before anything is known, and after a pause."""
_LEAST_CHANCE, _MOST_CHANCE = 0.05, 0.98
LONGEST_PAUSE = 16
"""Tokens for which a sequence whose drafts fail is left alone, at most."""
MOST_REQUESTS = 64
"""Whose books are kept."""


@dataclass(slots=True, eq=False)
class Plan:
    """A draft of one sequence, in this step."""

    seq: Sequence
    length: int = 0
    """Tokens; 0: there is none."""
    tokens: list[int] = field(default_factory=list)
    """As many, once they are known."""
    chance: float = FIRST_CHANCE
    """Of each of them to be accepted, if those before it are."""
    is_trial: bool = False
    """Whether such drafts did not pay of late."""


class Drafting:
    """The books of one request.

    Args:
        arrival: which request of its sequence it is.
        chance: of a drafted token to be accepted, as far as others tell.
    """

    __slots__ = ("arrival", "chance", "resume_at")

    def __init__(self, arrival: int, chance: float = FIRST_CHANCE) -> None:
        self.arrival, self.chance = arrival, chance
        self.resume_at = 0
        """Length of the sequence before which it is left alone."""


_D = TypeVar("_D", bound=Drafting)


class Books(dict[int, _D]):
    """Sequence -> what is kept of its request."""

    def of(self, seq: Sequence) -> _D | None:
        """None where its request is new."""
        found = self.get(seq.seq_id)
        return found if found is not None and found.arrival == seq.arrival else None

    def keep(self, seq: Sequence, drafting: _D) -> _D:
        """For a request that is new."""
        if len(self) >= MOST_REQUESTS:
            self.clear()  # of requests that are done; who is not begins anew
        self[seq.seq_id] = drafting
        return drafting


def learnt(chance: float, num_drafted: int, num_accepted: int, weight: float) -> float:
    """The running chance, once more is known."""
    tries = min(num_accepted + 1, num_drafted)
    return bounded(chance + weight * (num_accepted / tries - chance))


def bounded(chance: float) -> float:
    """Neither certain nor impossible, whatever was seen so far."""
    return min(max(chance, _LEAST_CHANCE), _MOST_CHANCE)

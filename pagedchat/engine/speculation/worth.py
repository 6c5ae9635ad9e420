"""Whether drafts pay: what a step with drafts took, against what its tokens would have taken without.

*The balance.* Every step that drafts puts into it the seconds that it has saved, or takes out those that it has
lost; every step of decodes puts in a small share of its own. Drafts are made while something is in it. So they
cannot lose more than that share, whatever the text and the machine are like, apart from what is granted at the
beginning.

*How many.* A drafted token is worth the chance that it is accepted times what a token takes without drafts; it
costs what a row adds to a step. Both are kept as running means.

Knows seconds and counts: no sequences, no tokens.
"""

from dataclasses import dataclass

SHARE = 0.015
"""Of the time that steps take, that drafts may lose."""
MOST_SAVED = 6.0
"""Steps without drafts whose time the balance holds at most: what was gained long ago is not gambled away."""
_GRANTED = 1.5
"""Steps' time that is in it at the beginning."""
_WARM_UP = 3
"""Steps without drafts of a size that are measured before there are drafts."""
_STALE_AFTER = 200
"""Steps with drafts after which one without is measured again."""
_WEIGHT = 0.15
"""Of the newest figure in a running mean."""
_FIRST_ROW_COST = 0.1
"""What a row is taken to add to a step, as a share of it, until that was measured."""


@dataclass(slots=True)
class _Plain:
    """Steps without drafts of one size."""

    seconds: float = 0.0
    num_measured: int = 0
    age: int = 0
    """Steps with drafts since."""

    def add(self, seconds: float) -> None:
        """Measured once more. One step that was held up by something else does not count for more than two."""
        self.num_measured += 1
        self.age = 0
        if self.num_measured == 1:
            self.seconds = seconds
        else:
            weight = max(_WEIGHT, 1 / self.num_measured)
            self.seconds += weight * (min(seconds, 2 * self.seconds) - self.seconds)


class Worth:
    """The books of one engine."""

    def __init__(self) -> None:
        self._plain: dict[int, _Plain] = {}
        """Sequences that decode together -> a step of theirs."""
        self._row_cost: float | None = None
        self._balance: float | None = None
        self._was_plain = False

    def may_draft(self, num_sequences: int) -> bool:
        """Whether as many that decode may have drafts now."""
        plain = self._plain.get(num_sequences)
        if plain is None or plain.num_measured < _WARM_UP or plain.age >= _STALE_AFTER:
            return False
        if self._balance is None:
            self._balance = _GRANTED * plain.seconds
        return self._balance > 0

    def least_chance(self, num_sequences: int) -> float:
        """Of being accepted, from which on a drafted token pays."""
        plain = self._plain[num_sequences].seconds
        cost = _FIRST_ROW_COST * plain if self._row_cost is None else self._row_cost
        return cost * num_sequences / max(plain, 1e-9)

    def note_plain(self, num_sequences: int, seconds: float) -> None:
        """A step of decodes without drafts. The first after one with drafts is not like the others: what a device
        begins ahead was not begun."""
        if self._was_plain:
            self._plain.setdefault(num_sequences, _Plain()).add(seconds)
        self._was_plain = True
        self._put_in(SHARE * seconds, seconds)

    def note_drafted(self, num_sequences: int, num_drafted: int, num_accepted: int, seconds: float) -> None:
        """A step with drafts.

        Args:
            num_sequences: that decoded in it.
            num_drafted: tokens of all drafts.
            num_accepted: of them.
            seconds: it took.
        """
        self._was_plain = False
        plain = self._plain.get(num_sequences)
        if plain is None:
            return
        plain.age += 1
        worth = plain.seconds * (num_sequences + num_accepted) / num_sequences
        self._put_in(worth - seconds + SHARE * seconds, plain.seconds)
        cost = max(0.0, seconds - plain.seconds) / num_drafted
        known = cost if self._row_cost is None else self._row_cost
        self._row_cost = known + _WEIGHT * (min(cost, 4 * known + 0.05 * plain.seconds) - known)

    def other_step(self) -> None:
        """A step with prompts in it: nothing is learnt of decodes."""
        self._was_plain = False

    def _put_in(self, seconds: float, step: float) -> None:
        if self._balance is not None:
            self._balance = min(self._balance + seconds, MOST_SAVED * step)

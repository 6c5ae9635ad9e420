"""Whether drafts pay: what a step with drafts took, against what its tokens would have taken without.

*The balance.* Every step that drafts puts into it the seconds that it has saved, or takes out those that it has
lost; every step of decodes puts in a small share of its own. Drafts are made while it has what they cost. So they
cannot lose more than that share, whatever the text and the machine are like, apart from what is granted at the
beginning.

*How many.* Drafted tokens are worth as many as are likely to be accepted, times what a token takes without drafts.
What they cost, steps tell: more than one without drafts, in running means by how many were drafted, 1, 2 to 3, 4
to 7 and so on: a processor pays for each of them. A GPU pays for the other kind of step, and for its rows, of which
there are 8, 16, 32 and so on however few are used: there means go by those.
While nothing is drafted, what drafts cost is slowly forgotten, so that they are tried again.

*A draft model* costs besides: a pass for each token of the longest draft, and what it reads of texts before it can
draft for them. It reads only what the rest of the reply is likely to win back. That is paid from a reserve, into
which goes what the balance does not hold, as long as its drafts seem to pay, and from the balance where that is to
be tried once more.

Knows seconds and counts: no sequences, no tokens.
"""

from dataclasses import dataclass

from pagedchat.engine.speculation.reading import CHUNK_TOKENS, ReadingTimes

SHARE = 0.015
"""Of the time that steps take, that drafts may lose."""
MOST_SAVED, _MOST_SAVED_BY_ROWS = 6.0, 12.0
"""Steps without drafts whose time the balance holds at most: what was gained long ago is not gambled away. More
where drafts cost some steps each."""
_GRANTED, _GRANTED_BY_ROWS = 1.5, 3.0
"""Steps' time that is in it at the beginning; where the first draft costs more, what that does."""
_RESERVED, _MOST_RESERVED = 256.0, 1024.0
"""Steps' time for what a draft model reads: at the beginning, and at the most. Who asks for a draft model is ready
to wait once for what it has to read of the first prompt."""
_WARM_UP = 3
"""Steps without drafts of a size that are measured before there are drafts."""
_STALE_AFTER = 200
"""Steps with drafts after which one without is measured again."""
_WEIGHT = 0.15
"""Of the newest figure in a running mean."""
_FIRST_COST = 0.08
"""What a drafted token is taken to add to a step, as a share of it, until that was measured."""
_FIRST_STEP_BY_ROWS, _FIRST_COST_BY_ROWS = 1.3, 0.02
"""The same where it goes by rows: steps more, however few are drafted, and for each of them."""
_MORE_FOR_TWICE = 1.5
"""Times that twice as many drafted tokens are taken to cost, until that was measured."""
_AT_FIRST = 8
"""Tokens drafted in a step, at most, before any was measured."""
_FORGOTTEN, _FORGOTTEN_OF_PASSES = 0.01, 0.002
"""Of what drafts cost, and of what a draft model's passes do, with every step without."""
_LIKELY = 0.5
"""Of what a draft model is expected to gain, that is counted on before it has read a text."""


_ROWS_BITS = range(3, 9)
"""Steps have 8 to 256 rows, where they go by rows."""
_Size = tuple[int, int]
"""What the cost of a step with drafts goes by: those of the same first number can be compared; bits of a count."""


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
    """The books of one engine.

    Args:
        by_rows: whether what a step with drafts takes goes by its rows, rounded up to a power of two.
    """

    def __init__(self, *, by_rows: bool = False) -> None:
        self.by_rows = by_rows
        """See above."""
        self._plain: dict[int, _Plain] = {}
        """Sequences that decode together -> a step of theirs."""
        self._extra: dict[_Size, float] = {}
        """Seconds that a step with drafts takes more than one without."""
        self._balance: float | None = None
        self._reserve = 0.0
        self._passes: dict[int, float] = {}
        """Bits of the number of sequences -> seconds of a draft model's pass."""
        self._remembered = 1.0
        """Of what passes cost, since they were measured."""
        self._reading = ReadingTimes()
        self._was_plain = False
        self._last_size: _Size | None = None
        """Of the step before, if it has drafted."""

    def may_draft(self, num_sequences: int) -> bool:
        """Whether as many that decode may have drafts now."""
        plain = self._plain_of(num_sequences)
        if plain is None or plain.age >= _STALE_AFTER:
            return False
        if self._balance is None:
            granted = _GRANTED_BY_ROWS if self.by_rows else _GRANTED
            self._balance, self._reserve = granted * plain.seconds, _RESERVED * plain.seconds
        return self._balance > 0

    def _plain_of(self, num_sequences: int) -> _Plain | None:
        """Steps without drafts of so many; until enough of them were measured, of the next more, up to twice as
        many: when chats of a batch end one by one, the others need not go without drafts."""
        for count in range(num_sequences, 2 * num_sequences + 1):
            plain = self._plain.get(count)
            if plain is not None and plain.num_measured >= _WARM_UP:
                return plain
        return None

    def _step(self, num_sequences: int) -> float:
        """Seconds of a step without drafts; of none that was measured nothing."""
        plain = self._plain_of(num_sequences)
        return 0.0 if plain is None else plain.seconds

    @property
    def most_drafted(self) -> int:
        """Tokens of all drafts of a step, at most."""
        return 1 << 30 if self._extra or self.by_rows else _AT_FIRST

    def best_length(self, num_sequences: int, chance: float, most: int, pass_seconds: float = 0.0) -> int:
        """Of one sequence's draft, where all draft as much; 0 where none pays that the balance can bear.

        Args:
            num_sequences: that decode.
            chance: of a drafted token to be accepted, if those before it are; below 1.
            most: tokens.
            pass_seconds: that a token of all drafts takes besides, to be made.
        """
        value, balance = self._step(num_sequences), self._balance or 0.0
        best, most_gained, likely, num_expected = 0, 0.0, 1.0, 0.0
        for length in range(1, most + 1):
            likely *= chance
            num_expected += likely
            cost = self._cost(num_sequences, length * num_sequences) + length * pass_seconds
            if cost > balance:
                break
            if num_expected * value - cost > most_gained:
                best, most_gained = length, num_expected * value - cost
        return best

    def best_cut(self, num_sequences: int, drafts: list[tuple[int, float]]) -> int:
        """To how many tokens drafts are to be cut, so that the step has no more rows than pay; 0: to none.

        Args:
            num_sequences: that decode.
            drafts: of each its length, not 0, and the chance of its tokens.
        """
        value, balance = self._step(num_sequences) / num_sequences, self._balance or 0.0
        lengths, chances = [length for length, _ in drafts], [chance for _, chance in drafts]
        longest = max(lengths)
        cuts = [((1 << bits) - num_sequences) // len(drafts) for bits in _ROWS_BITS]
        best, most_gained = 0, 0.0
        for cut in sorted({min(cut, longest) for cut in cuts if cut > 0}):
            cut_lengths = [length if length < cut else cut for length in lengths]
            cost = self._cost(num_sequences, sum(cut_lengths))
            if cost <= balance:
                gain = value * sum(map(expected, chances, cut_lengths)) - cost
                if gain > most_gained:
                    best, most_gained = cut, gain
        return best

    @property
    def can_try(self) -> bool:
        """Whether something may be tried of which nothing is known."""
        return (self._balance or 0.0) > 0

    def pays(self, num_sequences: int, num_drafted: int, num_expected: float, passes_seconds: float = 0.0) -> bool:
        """Whether so many drafted tokens pay together, of which so many are likely to be accepted, and the balance
        can bear it if none is. `passes_seconds`: that it takes to make them."""
        value = self._step(num_sequences) / num_sequences
        cost = self._cost(num_sequences, num_drafted) + passes_seconds
        return num_expected * value > cost and (self._balance or 0.0) >= cost

    def _cost(self, num_sequences: int, num_drafted: int) -> float:
        """Seconds. Unmeasured: more than the next smaller draft that was measured, or as the next larger."""
        size = self._size(num_sequences, num_drafted)
        known = self._extra.get(size)
        if known is not None:
            return known
        of, bits = size
        measured = [each for group, each in self._extra if group == of]
        smaller, larger = [each for each in measured if each < bits], [each for each in measured if each > bits]
        if smaller:
            return self._extra[of, max(smaller)] * _MORE_FOR_TWICE ** (bits - max(smaller))
        return self._extra[of, min(larger)] if larger else self._unknown_cost(num_sequences, num_drafted)

    def _unknown_cost(self, num_sequences: int, num_drafted: int) -> float:
        step = self._step(num_sequences)
        if self.by_rows:
            return (_FIRST_STEP_BY_ROWS + _FIRST_COST_BY_ROWS * num_drafted) * step
        return _FIRST_COST * num_drafted * step

    def _size(self, num_sequences: int, num_drafted: int) -> _Size:
        if not self.by_rows:
            return 0, num_drafted.bit_length()
        return num_sequences.bit_length(), max(_ROWS_BITS[0], (num_sequences + num_drafted - 1).bit_length())

    def note_plain(self, num_sequences: int, seconds: float) -> None:
        """A step of decodes without drafts. The first after one with drafts is not like the others: what a device
        begins ahead was not begun. What it takes longer is the drafts' cost."""
        plain = self._plain.setdefault(num_sequences, _Plain())
        if self._was_plain:
            plain.add(seconds)
        elif self._last_size and plain.num_measured:
            more = max(0.0, min(seconds, 4 * plain.seconds) - plain.seconds)
            self._put_in(-more, plain.seconds)
            self._extra[self._last_size] += _WEIGHT * more
        self._last_size = None
        self._was_plain = True
        for size in self._extra:
            self._extra[size] *= 1 - _FORGOTTEN
        self._remembered *= 1 - _FORGOTTEN_OF_PASSES
        self._put_in(SHARE * seconds, seconds)

    def note_drafted(
        self, num_sequences: int, num_drafted: int, num_accepted: int, seconds: float, passes_seconds: float = 0.0
    ) -> None:
        """A step with drafts.

        Args:
            num_sequences: that decoded in it.
            num_drafted: tokens of all drafts.
            num_accepted: of them.
            seconds: it took.
            passes_seconds: of these, what it took to make the drafts.
        """
        self._was_plain = False
        plain = self._plain_of(num_sequences)
        if plain is None:
            return
        plain.age += 1
        worth = plain.seconds * (num_sequences + num_accepted) / num_sequences
        self._put_in(worth - seconds + SHARE * seconds, plain.seconds)
        cost, size = max(0.0, seconds - passes_seconds - plain.seconds), self._size(num_sequences, num_drafted)
        self._last_size, known = size, self._extra.setdefault(size, cost)
        self._extra[size] = known + _WEIGHT * (min(cost, 4 * known + plain.seconds) - known)

    def other_step(self) -> None:
        """A step with prompts in it: nothing is learnt of decodes."""
        self._was_plain = False

    def _put_in(self, seconds: float, step: float) -> None:
        if self._balance is not None:
            most = _MOST_SAVED_BY_ROWS if self.by_rows else MOST_SAVED
            over = max(0.0, self._balance + seconds - most * step)
            self._balance += seconds - over
            self._reserve = min(self._reserve + over, _MOST_RESERVED * step)

    # --- a draft model's own work -------------------------------------------------------------------

    def pass_seconds(self, num_sequences: int, share: float) -> float:
        """Of a draft model for so many that decode; until that was measured, this share of a step, and when it is
        forgotten, no more than that."""
        guess = share * self._step(num_sequences)
        known = self._passes.get(num_sequences.bit_length(), guess)
        return max(known * self._remembered, min(known, guess))

    def note_passes(self, num_sequences: int, num_passes: int, seconds: float) -> None:
        """What so many took together."""
        self._remembered = 1.0
        _blend(self._passes, num_sequences.bit_length(), seconds / num_passes)

    def wins_back(
        self, num_sequences: int, chance: float, length: int, pass_seconds: float, num_to_read: int, num_left: int
    ) -> bool:
        """Whether drafts for the rest of a reply gain what the draft model takes to read its text before.

        Args:
            num_sequences, chance, pass_seconds: as those of `best_length`, which says
            length: how long a draft is.
            num_to_read: tokens that it lacks.
            num_left: tokens that the reply may still get.
        """
        tokens = expected(chance, length)
        cost = self._cost(num_sequences, length * num_sequences) / num_sequences + length * pass_seconds
        gain = tokens * self._step(num_sequences) - cost
        num_drafts = (num_left - num_to_read / CHUNK_TOKENS) / (1 + tokens)
        return _LIKELY * num_drafts * gain > self._reading.of(num_to_read, pass_seconds)

    def readable(self, *, is_trial: bool) -> int:
        """Tokens that a draft model may read now, before it drafts; `is_trial`: its drafts did not pay of late."""
        return self._reading.most_within((self._balance or 0.0) + (0.0 if is_trial else self._reserve))

    def note_read(self, num_tokens: int, seconds: float, *, is_trial: bool) -> None:
        """It has read so many."""
        self._reading.note(num_tokens, seconds)
        if self._balance is not None:
            reserved = 0.0 if is_trial else min(self._reserve, seconds)
            self._reserve -= reserved
            self._balance -= seconds - reserved


def expected(chance: float, length: int) -> float:
    """Of a draft's tokens, how many are accepted on the average."""
    return chance * (1 - chance**length) / (1 - chance)


def _blend(means: dict[int, float], key: int, seconds: float) -> None:
    """Into a running mean. One that was held up by something else does not count for more than four."""
    known = means.setdefault(key, seconds)
    means[key] = known + _WEIGHT * (min(seconds, 4 * known) - known)

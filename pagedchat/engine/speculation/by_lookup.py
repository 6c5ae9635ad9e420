"""Drafts that are looked up in the sequence itself. A draft of which nothing holds is followed by a pause, which is
the longer the more there were in a row: other places in the text may be better.

A reply that copies a text with small changes (an edit) goes on copying behind a change, as a rule, and usually at
the same distance, one word having taken the place of another. There nothing is found yet, since its last tokens are
new; so the draft goes on at that distance, past the token that was changed::

    copied from | def  total ( items , tax  ) : return  sum (
    reply       | def  total ( items , rate ) : ...
                                        ^ drafted "tax", got "rate": the next draft begins with ")"

What a draft has brought is indexed while the device is busy with the next one, which thus begins sooner, and misses
nothing but what repeats within these few tokens.

Knows tokens and whether drafts pay; no blocks, no model.
"""

from pagedchat.config import SpeculationConfig
from pagedchat.engine.sequence import Sequence
from pagedchat.engine.speculation.drafting import FIRST_CHANCE, LONGEST_PAUSE, Books, Drafting, Plan, bounded
from pagedchat.engine.speculation.lookup import PromptLookup, continued
from pagedchat.engine.speculation.worth import Worth

_TRIED_AT_FIRST = 4
"""Drafted tokens that what is believed at the beginning counts for."""
_KEPT = 0.8
"""Of what was known, with each draft."""
_ENOUGH_COPIED = 4
"""Tokens accepted from one text after which the reply is taken to go on with it."""


class _LookupDrafting(Drafting):
    __slots__ = (
        "distance", "has_hit", "has_strayed", "lookup", "misses", "num_brought", "num_copied", "num_right",
        "num_tried",
    )  # fmt: skip

    def __init__(self, arrival: int, config: SpeculationConfig) -> None:
        super().__init__(arrival)
        self.lookup = PromptLookup(config.prompt_lookup_max, config.prompt_lookup_min)
        self.num_brought = 0
        """Tokens that the step with the last draft has brought."""
        self.misses = 0
        """Drafts in a row of which nothing was accepted."""
        self.has_hit = False
        """Whether something of any draft was accepted."""
        self.distance = 0
        """From the last draft back to what it is a copy of."""
        self.num_copied = 0
        """Tokens accepted at this distance, as long as of one draft in two some are."""
        self.has_strayed = False
        """Whether nothing of the last draft at this distance was accepted."""
        self.num_right, self.num_tried = FIRST_CHANCE * _TRIED_AT_FIRST, float(_TRIED_AT_FIRST)
        """Drafted tokens that were accepted, and those that had come to be asked: the older the less they count."""

    @property
    def is_copying(self) -> bool:
        """Whether the reply has followed a text for long enough to go on with it behind a change."""
        return self.num_copied >= _ENOUGH_COPIED

    def place(self, token_ids: list[int], needed: int) -> int:
        """Where what may come next stands; -1: nowhere. `needed`: tokens that agree there."""
        at = self.lookup.place(token_ids, needed)
        if at < 0 and self.is_copying:
            at = len(token_ids) - self.distance
        if at >= 0 and len(token_ids) - at != self.distance:
            self.distance, self.num_copied, self.has_strayed = len(token_ids) - at, 0, False
        return at

    def hear(self, num_drafted: int, num_accepted: int) -> None:
        """So many tokens of the last draft were right."""
        self.num_brought = num_accepted + 1
        self.num_right = _KEPT * self.num_right + num_accepted
        self.num_tried = _KEPT * self.num_tried + min(num_accepted + 1, num_drafted)
        self.chance = bounded(self.num_right / self.num_tried)
        if num_accepted:
            self.misses, self.has_hit, self.has_strayed = 0, True, False
            self.num_copied += num_accepted
        elif self.is_copying and not self.has_strayed:
            self.has_strayed = True  # the very token that was changed
        else:
            self.misses, self.num_copied = self.misses + 1, 0

    def pause(self, length: int, num_tokens: int) -> None:
        """No draft for so many tokens of a sequence that is `length` long."""
        self.misses = max(1, self.misses)
        self.resume_at = length + min(num_tokens, LONGEST_PAUSE)


class ByLookup:
    """Looks drafts up for one engine."""

    def __init__(self, config: SpeculationConfig) -> None:
        self._config = config
        self._books: Books[_LookupDrafting] = Books()
        self._late: list[tuple[PromptLookup, list[int]]] = []
        """What is to be indexed yet, and the tokens."""

    def plan(self, seq: Sequence, most: int, num_sequences: int, worth: Worth | None) -> Plan:
        """What is found for it.

        Args:
            seq: decodes.
            most: tokens.
            num_sequences: that decode with it.
            worth: whether it pays; None: it need not.
        """
        drafting = self._books.of(seq) or self._books.keep(seq, _LookupDrafting(seq.arrival, self._config))
        plan, token_ids = Plan(seq), seq.token_ids
        if len(token_ids) < drafting.resume_at:
            plan.rest = drafting.resume_at - len(token_ids)
            return plan
        if most <= 0 or not self._index(drafting, token_ids):
            return plan
        # Agreements of few tokens, which chance brings about, are no reason to begin, nor to leave a text.
        is_choosy = drafting.misses or drafting.is_copying or (worth is not None and not drafting.has_hit)
        needed = self._config.prompt_lookup_max if is_choosy else self._config.prompt_lookup_min
        at = drafting.place(token_ids, needed)
        if at < 0:  # each token more can make the agreement longer by one
            plan.rest = max(1, needed - drafting.lookup.agreed)
            drafting.resume_at = len(token_ids) + plan.rest
            return plan
        if worth is not None:
            drafting.chance = max(drafting.chance, FIRST_CHANCE) if drafting.misses else drafting.chance
            if not worth.by_rows:  # there all drafts are cut together
                most = worth.best_length(num_sequences, drafting.chance, most)
            if not most:
                drafting.pause(len(token_ids), LONGEST_PAUSE)
        plan.tokens = continued(token_ids, at, most)
        plan.length, plan.chance = most, drafting.chance
        return plan

    def _index(self, drafting: _LookupDrafting, token_ids: list[int]) -> bool:
        """What is new, now or soon; False if more is left than that."""
        if 1 < drafting.lookup.num_behind(token_ids) <= drafting.num_brought:
            self._late.append((drafting.lookup, token_ids))
            return True
        return drafting.lookup.catch_up(token_ids)

    @property
    def is_late(self) -> bool:
        """Whether `index_late` has anything to do."""
        return len(self._late) > 0

    def index_late(self) -> None:
        """What was left for later: while a device is busy, or else before the next draft."""
        for lookup, token_ids in self._late:
            lookup.catch_up(token_ids)
        self._late.clear()

    def take_in(self, seq: Sequence) -> None:
        """Index the tokens of a sequence that may want drafts later."""
        drafting = self._books.of(seq) or self._books.keep(seq, _LookupDrafting(seq.arrival, self._config))
        drafting.lookup.catch_up(seq.token_ids)

    def learn(self, seq: Sequence, num_drafted: int, num_accepted: int) -> None:
        """What became of a draft."""
        drafting = self._books.of(seq)
        if drafting is not None:
            drafting.hear(num_drafted, num_accepted)
            if drafting.misses:
                drafting.pause(len(seq.token_ids), 2**drafting.misses - 1)

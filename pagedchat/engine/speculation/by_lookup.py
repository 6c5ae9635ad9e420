"""Drafts that are looked up in the sequence itself. A draft of which nothing holds is followed by a pause, which is
the longer the more there were in a row: other places in the text may be better.

Knows tokens and whether drafts pay; no blocks, no model.
"""

from pagedchat.config import SpeculationConfig
from pagedchat.engine.sequence import Sequence
from pagedchat.engine.speculation.drafting import FIRST_CHANCE, LONGEST_PAUSE, Books, Drafting, Plan, learnt
from pagedchat.engine.speculation.lookup import PromptLookup
from pagedchat.engine.speculation.worth import Worth


class _LookupDrafting(Drafting):
    __slots__ = ("lookup", "misses")

    def __init__(self, arrival: int, config: SpeculationConfig) -> None:
        super().__init__(arrival)
        self.lookup = PromptLookup(config.prompt_lookup_max, config.prompt_lookup_min)
        self.misses = 0
        """Drafts in a row of which nothing was accepted."""

    def pause(self, length: int, num_tokens: int) -> None:
        """No draft for so many tokens of a sequence that is `length` long."""
        self.misses = max(1, self.misses)
        self.resume_at = length + min(num_tokens, LONGEST_PAUSE)


class ByLookup:
    """Looks drafts up for one engine."""

    def __init__(self, config: SpeculationConfig) -> None:
        self._config = config
        self._books: Books[_LookupDrafting] = Books()

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
        if not drafting.lookup.catch_up(token_ids) or len(token_ids) < drafting.resume_at or most <= 0:
            return plan
        found = drafting.lookup.draft(token_ids, most, self._config.prompt_lookup_max if drafting.misses else 0)
        if found and worth is not None:
            drafting.chance = max(drafting.chance, FIRST_CHANCE) if drafting.misses else drafting.chance
            paid = worth.best_length(num_sequences, drafting.chance, most)
            if not paid:
                drafting.pause(len(token_ids), LONGEST_PAUSE)
            found = found[:paid]
        plan.tokens, plan.length, plan.chance = found, len(found), drafting.chance
        return plan

    def learn(self, seq: Sequence, num_drafted: int, num_accepted: int) -> None:
        """What became of a draft."""
        drafting = self._books.of(seq)
        if drafting is not None:
            drafting.chance = learnt(drafting.chance, num_drafted, num_accepted)
            drafting.misses = 0 if num_accepted else drafting.misses + 1
            if drafting.misses:
                drafting.pause(len(seq.token_ids), 2**drafting.misses - 1)

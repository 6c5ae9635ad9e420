"""Drafts by a model, for whom they are likely to pay. It goes by the chance alone that a token of its is accepted:
where that is too low for any draft, there is a pause, and then a short draft for trial.

A new request begins with the chance that others have found. Knows whether drafts pay, and asks the model for them;
no blocks and no batches.
"""

from pagedchat.config import SpeculationConfig
from pagedchat.engine.sequence import Sequence
from pagedchat.engine.speculation.draft_model import DraftModel
from pagedchat.engine.speculation.drafting import FIRST_CHANCE, LONGEST_PAUSE, Books, Drafting, Plan, learnt
from pagedchat.engine.speculation.reading import CHUNK_TOKENS
from pagedchat.engine.speculation.worth import Worth

_MOST_PAUSES = 4
"""In a row, each of which is twice as long as the one before."""
_MOST_IN_TRIAL = 2
"""Tokens of a draft for trial."""
_WEIGHT, _WEIGHT_OF_TRIAL = 0.1, 0.6
"""Of a draft in the running chance: a model is about as good all along, and of a trial there is only one."""
_ENOUGH = 4
"""Drafts after which something is known of the model; until then it drafts for one sequence at a time."""


class _ModelDrafting(Drafting):
    __slots__ = ("num_pauses", "trial_is_due")

    def __init__(self, arrival: int, chance: float) -> None:
        super().__init__(arrival, chance)
        self.num_pauses = 0
        """Since drafts paid."""
        self.trial_is_due = False
        """Whether there may be a draft although the chance is too low."""

    def pause(self, length: int) -> None:
        """It does not pay, as it seems, for a sequence that is `length` long."""
        self.resume_at = length + (LONGEST_PAUSE << self.num_pauses)
        self.num_pauses = min(self.num_pauses + 1, _MOST_PAUSES)
        self.trial_is_due = True

    def note_paid(self) -> None:
        self.num_pauses, self.trial_is_due = 0, False


class ByModel:
    """Asks a model for drafts.

    Args:
        model: that drafts.
        config: how long a draft may be.
    """

    def __init__(self, model: DraftModel, config: SpeculationConfig) -> None:
        self.model = model
        self.read_seconds = self.passes_seconds = 0.0
        """Of this step, that the model took: for texts that it lacked, and for drafts."""
        self._config = config
        self._books: Books[_ModelDrafting] = Books()
        self._chance, self._num_drafts = FIRST_CHANCE, 0
        """Of a token to be accepted, over all requests, and how many drafts say so."""

    @property
    def is_new(self) -> bool:
        """Whether nothing is known of the model: it is to draft for one sequence, to see what comes of it."""
        return self._num_drafts < _ENOUGH

    def begin_step(self) -> None:
        """Nothing was done for this step yet."""
        self.read_seconds = self.passes_seconds = 0.0
        self.model.num_passes = 0

    def plan(self, seq: Sequence, most: int, num_sequences: int, worth: Worth | None) -> Plan:
        """How many tokens are to be drafted for it; arguments as those of `ByLookup.plan`."""
        drafting = self._books.of(seq) or self._books.keep(seq, _ModelDrafting(seq.arrival, self._chance))
        length = len(seq.token_ids)
        most = min(most, self.model.model_len - length)
        plan = Plan(seq, chance=drafting.chance)
        if most <= 0 or length < drafting.resume_at:
            plan.rest = drafting.resume_at - length
            return plan
        if worth is None:
            plan.length = most
            return plan
        each = worth.pass_seconds(num_sequences, self.model.share)
        plan.length = worth.best_length(num_sequences, drafting.chance, most, each)
        if plan.length:
            drafting.note_paid()
        elif drafting.trial_is_due:
            plan.is_trial, plan.chance = True, FIRST_CHANCE
            plan.length = worth.best_length(num_sequences, FIRST_CHANCE, min(most, _MOST_IN_TRIAL), each)
        if plan.length and not self._wins_back(plan, num_sequences, worth, each):
            plan.length = 0
        if not plan.length:
            drafting.pause(length)
            plan.rest = drafting.resume_at - length
        return plan

    def _wins_back(self, plan: Plan, num_sequences: int, worth: Worth, pass_seconds: float) -> bool:
        """Whether the rest of its reply is worth what the model has to read before."""
        seq = plan.seq
        num_to_read = self.model.num_to_read(seq)
        if not num_to_read:
            return True
        num_left = seq.stop_length - len(seq.token_ids)
        return worth.wins_back(num_sequences, plan.chance, plan.length, pass_seconds, num_to_read, num_left)

    def read(self, plans: list[Plan], worth: Worth | None) -> None:
        """Have the model read what it lacks of texts, for plans that have a length. Of whom it is not done with by
        then, the plan is dropped."""
        if worth is not None and self.is_new:
            plans[0].length = min(plans[0].length, _MOST_IN_TRIAL)
            for plan in plans[1:]:
                plan.length = 0
        for is_trial in (False, True):
            behind = [plan for plan in plans if plan.length and plan.is_trial is is_trial]
            behind = [plan for plan in behind if self.model.is_behind(plan.seq)]
            most = CHUNK_TOKENS if worth is None else worth.readable(is_trial=is_trial)
            if behind and most:
                self.model.catch_up([plan.seq for plan in behind], most)
                self.read_seconds += self.model.read_seconds
                if worth is not None and self.model.num_read:
                    worth.note_read(self.model.num_read, self.model.read_seconds, is_trial=is_trial)
            for plan in behind:
                if self.model.is_broken or self.model.is_behind(plan.seq):
                    plan.length = 0

    def propose(self, plans: list[Plan], num_sequences: int, worth: Worth | None) -> None:
        """Have the model draft as long as planned, for which there is room."""
        drafts = self.model.propose([(plan.seq, plan.length) for plan in plans])
        for plan, tokens in zip(plans, drafts, strict=True):
            plan.tokens, plan.length = tokens, len(tokens)
        self.passes_seconds = self.model.passes_seconds
        if worth is not None and self.model.num_passes:
            worth.note_passes(num_sequences, self.model.num_passes, self.passes_seconds)

    def learn(self, seq: Sequence, num_drafted: int, num_accepted: int) -> None:
        """What became of a draft."""
        self._num_drafts += 1
        weight = max(_WEIGHT, 1 / (self._num_drafts + 1))  # the first ones tell most
        self._chance = learnt(self._chance, num_drafted, num_accepted, weight)
        drafting = self._books.of(seq)
        if drafting is not None:
            weight = _WEIGHT_OF_TRIAL if drafting.trial_is_due else _WEIGHT
            drafting.chance = learnt(drafting.chance, num_drafted, num_accepted, weight)
            drafting.trial_is_due = False

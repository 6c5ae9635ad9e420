"""Drafts for the sequences of a batch, and what is learnt from what becomes of them.

Asked at the end of scheduling, with what the batch leaves of tokens and blocks: nobody gives anything up for a
draft. Drafted tokens stand in the parts of a batch alone, never in a sequence; so neither the prefix cache nor
anybody who forks the sequence can see one that is not accepted. Blocks that a draft took and that nothing was kept
in are given back after the step.

Knows sequences, blocks and seconds; no model and no queue.
"""

from pagedchat.config import SpeculationConfig
from pagedchat.engine.block_manager import BlockManager
from pagedchat.engine.output import ScheduledSequence
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.engine.speculation.lookup import PromptLookup
from pagedchat.engine.speculation.worth import Worth, expected

MOST_SEQUENCES = 32
"""Sequences that decode together up to which any of them is drafted for: with more a step's time goes by rows."""
_FIRST_CHANCE = 0.85
"""That a drafted token is accepted, before anything is known, and after a pause."""
_LEAST_CHANCE, _MOST_CHANCE = 0.05, 0.98
_WEIGHT = 0.3
"""Of the newest draft in the running chance."""
_LONGEST_PAUSE = 16
"""Tokens for which a sequence whose drafts fail is left alone, at most."""


class _Drafting:
    """One request's drafts."""

    __slots__ = ("arrival", "chance", "lookup", "misses", "resume_at")

    def __init__(self, arrival: int, config: SpeculationConfig) -> None:
        self.arrival = arrival
        self.lookup = PromptLookup(config.prompt_lookup_max, config.prompt_lookup_min)
        self.chance = _FIRST_CHANCE
        self.misses = 0
        """Drafts in a row of which nothing was accepted."""
        self.resume_at = 0
        """Length of the sequence before which it is left alone."""

    def learn(self, num_drafted: int, num_accepted: int, length: int) -> None:
        """From what became of a draft; the sequence is `length` long now."""
        tries = min(num_accepted + 1, num_drafted)
        chance = self.chance + _WEIGHT * (num_accepted / tries - self.chance)
        self.chance = min(max(chance, _LEAST_CHANCE), _MOST_CHANCE)
        self.misses = 0 if num_accepted else self.misses + 1
        if self.misses:
            self.pause(length, 2**self.misses - 1)

    def pause(self, length: int, num_tokens: int) -> None:
        """No draft for so many tokens of a sequence that is `length` long."""
        self.misses = max(1, self.misses)
        self.resume_at = length + min(num_tokens, _LONGEST_PAUSE)


class Drafts:
    """Makes drafts for one engine.

    Args:
        config: what requests get that ask for nothing else.
        blocks: whose blocks.
        most_rows: tokens of all sequences in a step that decodes, drafted ones included.
    """

    def __init__(self, config: SpeculationConfig, blocks: BlockManager, most_rows: int) -> None:
        self._config, self._blocks, self._most_rows = config, blocks, most_rows
        self.is_on = config.method != "off"
        """Whether anybody may want drafts, so that each step has to be looked at."""
        self._by_sequence: dict[int, _Drafting] = {}
        self.worth: Worth | None = Worth()
        """None: drafts are made whether they pay or not."""
        self._taken: list[tuple[Sequence, int]] = []
        """Who has got blocks for a draft in this step, and how many it had before."""
        self._is_drafted = False
        self.num_drafts = self.num_drafted = self.num_accepted = 0
        """Since the engine started: drafts, their tokens, and those of them that were accepted."""

    def hear(self, params: SamplingParams) -> None:
        """A request goes by these."""
        self.is_on = self.is_on or params.speculate == "lookup"

    def may_draft(self, seq: Sequence) -> bool:
        """Whether this request wants drafts. None are made where each token is to be told of, or is held to a form,
        which is followed token by token; nor for the beams of a search."""
        params = seq.sampling_params
        if params.logprobs is not None or params.structured_outputs is not None:
            return False
        return (self._config.method if params.speculate is None else params.speculate) != "off"

    # --- before the step ----------------------------------------------------------------------------

    def add(self, batch: list[ScheduledSequence], budget: int) -> bool:
        """Give parts of a batch that decode drafts.

        Args:
            batch: complete, with blocks for all that it writes; changed.
            budget: tokens that the step may have beyond it.

        Returns:
            Whether any has got one.
        """
        self._is_drafted = False
        self._taken.clear()
        if not self._wanted(batch):
            return False
        decodes = [part for part in batch if _is_decode(part)]
        count = len(decodes)
        left = min(budget, self._most_rows - count, self.worth.most_drafted if self.worth else budget)
        if not 0 < count <= MOST_SEQUENCES or left <= 0 or (self.worth and not self.worth.may_draft(count)):
            return False
        drafts = self._all_drafts([part.sequence for part in decodes], left)
        for part, draft in zip(decodes, drafts, strict=True):
            if draft:
                part.draft = draft[: self._make_room(part.sequence, len(draft))]
                part.num_tokens += len(part.draft)
                self._is_drafted = self._is_drafted or bool(part.draft)
        return self._is_drafted

    def _all_drafts(self, sequences: list[Sequence], left: int) -> list[list[int]]:
        """For each a draft, maybe empty, `left` tokens together at most; for nobody any where they do not pay."""
        drafts, num_expected, num_drafted = [], 0.0, 0
        for index, seq in enumerate(sequences):
            draft = self._draft(seq, -(-left // (len(sequences) - index)), len(sequences))
            drafts.append(draft)
            left -= len(draft)
            if draft:
                num_expected += expected(self._by_sequence[seq.seq_id].chance, len(draft))
                num_drafted += len(draft)
        if (
            self.worth is not None
            and num_drafted
            and not self.worth.pays(len(sequences), num_drafted, num_expected)
        ):
            return [[] for _ in sequences]
        return drafts

    def _wanted(self, batch: list[ScheduledSequence]) -> bool:
        """Whether anybody of a small batch asks for drafts."""
        return len(batch) <= 2 * MOST_SEQUENCES and any(self.may_draft(part.sequence) for part in batch)

    def _draft(self, seq: Sequence, most: int, num_sequences: int) -> list[int]:
        if not self.may_draft(seq):
            return []
        token_ids, drafting = seq.token_ids, self._drafting(seq)
        if not drafting.lookup.catch_up(token_ids) or len(token_ids) < drafting.resume_at:
            return []
        most = min(most, self._config.num_speculative_tokens, seq.stop_length - len(token_ids) - 1)
        if most <= 0:
            return []
        found = drafting.lookup.draft(token_ids, most, self._config.prompt_lookup_max if drafting.misses else 0)
        if not found or self.worth is None:
            return found
        chance = max(drafting.chance, _FIRST_CHANCE) if drafting.misses else drafting.chance
        paid = self.worth.best_length(num_sequences, chance, most)
        if not paid:
            drafting.pause(len(token_ids), _LONGEST_PAUSE)
        drafting.chance = chance
        return found[:paid]

    def _drafting(self, seq: Sequence) -> _Drafting:
        drafting = self._by_sequence.get(seq.seq_id)
        if drafting is None or drafting.arrival != seq.arrival:
            if len(self._by_sequence) > 2 * MOST_SEQUENCES:
                self._by_sequence.clear()  # of sequences that are done; who is not is indexed again
            drafting = self._by_sequence[seq.seq_id] = _Drafting(seq.arrival, self._config)
        return drafting

    def _make_room(self, seq: Sequence, count: int) -> int:
        """Blocks for so many tokens behind the next one; returns for how many there are."""
        end, had = seq.num_computed + 1 + count, len(seq.block_table)
        while seq.writable_len < end and self._blocks.pool.num_available:
            self._blocks.append_block(seq)
        if len(seq.block_table) > had:
            self._taken.append((seq, had))
        return min(count, seq.writable_len - seq.num_computed - 1)

    # --- after the step -----------------------------------------------------------------------------

    def give_back(self) -> None:
        """Blocks that were taken for drafts and have nothing in them, nor will have with the next token."""
        for seq, had in self._taken:
            if len(seq.block_table) > had:
                self._blocks.give_back(seq, max(had, self._blocks.num_blocks_for(seq.num_computed + 1)))
        self._taken.clear()

    def learn(self, batch: list[ScheduledSequence], seconds: float) -> None:
        """From a step that was run and settled.

        Args:
            batch: as `settle` left it.
            seconds: from before it was scheduled until it was taken in.
        """
        if not self._is_drafted:
            self._learn_plain(batch, seconds)
            return
        num_drafted = num_accepted = 0
        is_all_decodes = True
        for part in batch:
            drafted = len(part.draft)
            is_all_decodes = is_all_decodes and (drafted > 0 or part.num_tokens == 1)
            if drafted:
                self._note(part, drafted)
                num_drafted += drafted
                num_accepted += part.num_tokens - 1
        self.num_drafted += num_drafted
        self.num_accepted += num_accepted
        if self.worth is not None and num_drafted:
            if is_all_decodes:
                self.worth.note_drafted(len(batch), num_drafted, num_accepted, seconds)
            else:
                self.worth.other_step()

    def _note(self, part: ScheduledSequence, drafted: int) -> None:
        self.num_drafts += 1
        seq = part.sequence
        drafting = self._by_sequence.get(seq.seq_id)
        if drafting is not None:
            drafting.learn(drafted, part.num_tokens - 1, len(seq.token_ids))

    def _learn_plain(self, batch: list[ScheduledSequence], seconds: float) -> None:
        if self.worth is None or not self._wanted(batch):
            return
        if len(batch) <= MOST_SEQUENCES and all(map(_is_decode, batch)):
            self.worth.note_plain(len(batch), seconds)
        else:
            self.worth.other_step()


def _is_decode(part: ScheduledSequence) -> bool:
    return part.num_tokens == 1 and part.start >= part.sequence.num_prompt_tokens

"""Drafts for the sequences of a batch, and what is learnt from what becomes of them.

Asked at the end of scheduling, with what the batch leaves of tokens and blocks: nobody gives anything up for a
draft. Drafted tokens stand in the parts of a batch alone, never in a sequence; so neither the prefix cache nor
anybody who forks the sequence can see one that is not accepted. Blocks that a draft took and that nothing was kept
in are given back after the step.

Knows sequences, blocks and seconds; no queue, and not how drafts are made (`by_lookup`, `by_model`).
"""

from collections.abc import Callable

from pagedchat.config import SpeculationConfig, SpeculationMethod
from pagedchat.engine.block_manager import BlockManager
from pagedchat.engine.output import BlockOp, DecodeRun, DraftVerifier, ScheduledSequence
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.engine.speculation.by_lookup import ByLookup
from pagedchat.engine.speculation.by_model import ByModel
from pagedchat.engine.speculation.draft_model import DraftModel
from pagedchat.engine.speculation.drafting import Plan
from pagedchat.engine.speculation.worth import Worth, expected

MOST_SEQUENCES = 32
"""Sequences that decode together up to which any of them is drafted for: with more a step's time goes by rows."""


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
        self._by_lookup = ByLookup(config)
        self._by_model: ByModel | None = None
        self.worth: Worth | None = Worth()
        """None: drafts are made whether they pay or not."""
        self._verifier: DraftVerifier | None = None
        """Who says how many tokens a step may have; None: any."""
        self._taken: list[tuple[Sequence, int]] = []
        """Who has got blocks for a draft in this step, and how many it had before."""
        self._is_drafted = False
        self._resting: DecodeRun | None = None
        """A run in which nobody is to have a draft for some steps,"""
        self._rest = 0
        """and for how many."""
        self.num_drafts = self.num_drafted = self.num_accepted = 0
        """Since the engine started: drafts, their tokens, and those of them that were accepted."""

    def verify_by(self, verifier: DraftVerifier) -> None:
        """Ask this one how many tokens a step may have."""
        self._verifier = verifier
        self.forget_costs()

    def forget_costs(self) -> None:
        """Whether drafts pay is to be found out anew."""
        self.worth = Worth(by_rows=self._verifier is not None)

    def use(self, model: DraftModel) -> None:
        """Have this one draft, for requests that want a model to."""
        self._by_model = ByModel(model, self._config)

    def time_by(self, clock: Callable[[], float]) -> None:
        """Another clock than the one that the draft model was given."""
        if self._by_model is not None:
            self._by_model.model.clock = clock

    def let_go(self) -> None:
        """Of the draft model and of who verifies drafts, for good."""
        self._by_model = self._verifier = None

    def hear(self, params: SamplingParams) -> None:
        """A request goes by these."""
        self.is_on = self.is_on or params.speculate == "lookup"

    def may_draft(self, seq: Sequence) -> bool:
        """Whether this request wants drafts, and can have them."""
        return self._method(seq) != "off"

    def _method(self, seq: Sequence) -> SpeculationMethod:
        """None are made where each token is to be told of, or is held to a form, which is followed token by token;
        nor for the beams of a search."""
        params = seq.sampling_params
        if params.logprobs is not None or params.structured_outputs is not None:
            return "off"
        method = self._config.method if params.speculate is None else params.speculate
        if method == "model" and (self._by_model is None or self._by_model.model.is_broken):
            return "off"
        return method

    @property
    def model_seconds(self) -> float:
        """That a draft model took for this step."""
        return 0.0 if self._by_model is None else self._by_model.read_seconds + self._by_model.passes_seconds

    def take_in(self, chunks: list[ScheduledSequence]) -> None:
        """Prompts that are being computed: where there is time to look at them."""
        for part in chunks:
            if self._method(part.sequence) == "lookup":
                self._by_lookup.take_in(part.sequence)

    @property
    def is_late(self) -> bool:
        """Whether something about the last drafts is to be done beside the device (`index_late`)."""
        return self._by_lookup.is_late

    def index_late(self) -> None:
        """See `ByLookup.index_late`."""
        self._by_lookup.index_late()

    # --- before the step ----------------------------------------------------------------------------

    def note(self, batch: list[ScheduledSequence], block_ops: list[BlockOp]) -> None:
        """What the next step writes and moves."""
        if self._by_model is not None:
            self._by_model.begin_step()
            self._by_model.model.note(batch, block_ops)

    def note_run(self, run: DecodeRun, batch: list[ScheduledSequence]) -> None:
        """The same of a step that follows one like it: of whose blocks anything was drafted is noted by then."""
        if self._by_model is not None:
            if self._by_model.model.num_passes:  # maybe for a draft that came to nothing
                self.note(batch, [])
            self._by_model.begin_step()
            self._by_model.model.note([batch[index] for index in run.grown], [])

    def rests(self, run: DecodeRun) -> bool:
        """Whether nobody is to have a draft in this step of a run; to be asked once in each."""
        self._rest -= 1
        self._is_drafted = False
        if run is self._resting and self._rest > 0:
            return True
        self._resting, self._rest = run, 0
        return False

    def add(self, batch: list[ScheduledSequence], budget: int) -> bool:
        """Give parts of a batch that decode drafts.

        Args:
            batch: complete, with blocks for all that it writes, and noted; changed.
            budget: tokens that the step may have beyond it.

        Returns:
            Whether any has got one.
        """
        self._is_drafted = False
        self._taken.clear()
        if not self._wanted(batch):
            return False
        self.index_late()  # of a step that was not run with what was planned for it
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
        if not self._is_drafted:
            self.give_back()
        return self._is_drafted

    def _wanted(self, batch: list[ScheduledSequence]) -> bool:
        """Whether anybody of a small batch asks for drafts."""
        return len(batch) <= 2 * MOST_SEQUENCES and any(self.may_draft(part.sequence) for part in batch)

    def _all_drafts(self, sequences: list[Sequence], left: int) -> list[list[int]]:
        """For each a draft, maybe empty, `left` tokens together at most; for nobody any where they do not pay."""
        plans, of_model, count = list[Plan](), list[Plan](), len(sequences)
        for index, seq in enumerate(sequences):
            method = self._method(seq)
            plan = self._plan(seq, method, -(-left // (count - index)), count)
            plans.append(plan)
            left -= plan.length
            if method == "model" and plan.length:
                of_model.append(plan)
        self._rest = min([plan.rest for plan in plans])
        if self._by_model is not None and of_model:
            self._by_model.read(of_model, self.worth)
            of_model = [plan for plan in of_model if plan.length]
        self._cut([plan for plan in plans if plan.length], sequences)
        num_passes = max([plan.length for plan in of_model], default=0)
        if not self._pay([plan for plan in plans if plan.length], num_passes, count):
            return [[] for _ in sequences]
        if self._by_model is not None and of_model:
            for plan in of_model:
                plan.length = self._make_room(plan.seq, plan.length)
            self._by_model.propose(of_model, count, self.worth)
        return [plan.tokens for plan in plans]

    def _plan(self, seq: Sequence, method: SpeculationMethod, most: int, num_sequences: int) -> Plan:
        """What is to be drafted for it, of so many that decode."""
        most = min(most, self._config.most_drafted(method), seq.stop_length - len(seq.token_ids) - 1)
        if method == "lookup":
            return self._by_lookup.plan(seq, most, num_sequences, self.worth)
        if method == "model" and self._by_model is not None:
            return self._by_model.plan(seq, most, num_sequences, self.worth)
        return Plan(seq)

    def _cut(self, planned: list[Plan], sequences: list[Sequence]) -> None:
        """To the rows that there are steps for, and that pay, where that is what counts."""
        if self._verifier is None or not planned:
            return
        count = len(sequences)
        longest = max([len(seq.token_ids) for seq in sequences]) + max([plan.length for plan in planned])
        rows = self._verifier.most_rows(sequences, longest, count + sum([plan.length for plan in planned]))
        most = (rows - count) // len(planned)
        if most > 0 and self.worth is not None:
            most = self.worth.best_cut(count, [(min(plan.length, most), plan.chance) for plan in planned])
        for plan in planned:
            plan.length = max(0, min(plan.length, most))
            del plan.tokens[plan.length :]

    def _pay(self, planned: list[Plan], num_passes: int, num_sequences: int) -> bool:
        """Whether these pay together, with so many passes of the draft model; so do those that were cut to what
        pays."""
        if self.worth is None or not planned or (self._verifier is not None and not num_passes):
            return True
        if num_passes and self._by_model is not None and self._by_model.is_new:
            return self.worth.can_try
        num_expected = sum([expected(plan.chance, plan.length) for plan in planned])
        share = self._by_model.model.share if self._by_model else 0.0
        passes = num_passes * self.worth.pass_seconds(num_sequences, share) if num_passes else 0.0
        return self.worth.pays(num_sequences, sum([plan.length for plan in planned]), num_expected, passes)

    def _make_room(self, seq: Sequence, count: int) -> int:
        """Blocks for so many tokens behind the next one; returns for how many there are."""
        end, had = seq.num_computed + 1 + count, len(seq.block_table)
        while seq.writable_len < end and self._blocks.pool.num_available:
            self._blocks.append_block(seq)
        if len(seq.block_table) > had:
            self._taken.append((seq, had))
            if self._by_model is not None:
                self._by_model.model.forget(seq.block_table[had:])
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
        passes = self._by_model.passes_seconds if self._by_model else 0.0
        seconds -= self.model_seconds - passes  # of what it read there are other books
        if not self._is_drafted:
            self._learn_plain(batch, seconds - passes)
            return
        num_drafted = num_accepted = 0
        is_all_decodes = True
        for part in batch:
            drafted = len(part.draft)
            is_all_decodes = is_all_decodes and (drafted > 0 or part.num_tokens == 1)
            if drafted:
                self._note_draft(part, drafted)
                num_drafted += drafted
                num_accepted += part.num_tokens - 1
        self.num_drafted += num_drafted
        self.num_accepted += num_accepted
        if self.worth is not None and num_drafted:
            if is_all_decodes:
                self.worth.note_drafted(len(batch), num_drafted, num_accepted, seconds, passes)
            else:
                self.worth.other_step()

    def _note_draft(self, part: ScheduledSequence, drafted: int) -> None:
        self.num_drafts += 1
        if self._method(part.sequence) == "lookup":
            self._by_lookup.learn(part.sequence, drafted, part.num_tokens - 1)
        elif self._by_model is not None:
            self._by_model.learn(part.sequence, drafted, part.num_tokens - 1)

    def _learn_plain(self, batch: list[ScheduledSequence], seconds: float) -> None:
        if self.worth is None or not (self._rest > 0 or self._wanted(batch)):
            return
        if len(batch) <= MOST_SEQUENCES and all(map(_is_decode, batch)):
            self.worth.note_plain(len(batch), seconds)
        else:
            self.worth.other_step()


def _is_decode(part: ScheduledSequence) -> bool:
    return part.num_tokens == 1 and part.start >= part.sequence.num_prompt_tokens

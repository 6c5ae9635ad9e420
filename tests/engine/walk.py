"""A random workload on one engine: any verb at any time, scarcity of every kind, the user's hand on the pool.

Every read of the cache is checked by the runner, and after every operation the mirror must equal the engine.
"""

import random
from collections import Counter

from pagedchat.cache_events import BlocksFreed, ContentsLost, SequenceForked, SequenceParked
from pagedchat.config import SpeculationConfig
from pagedchat.engine.core import EngineCore
from pagedchat.engine.groups.beam_params import BeamSearchParams
from pagedchat.engine.groups.beams import BeamGroup
from pagedchat.engine.groups.search import Hypothesis
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.mirror import CacheMirror
from pagedchat.engine.output import SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.speculation.draft_model import DraftRunner
from pagedchat.engine.speculation.worth import Worth
from pagedchat.errors import RequestError
from pagedchat.events import StepReport
from tests.engine.checks import assert_mirror_equals, assert_replies, copied
from tests.engine.groups.beam_model import BeamRunner, expected_search
from tests.engine.kv_simulator import SmallerModel, expected_reply
from tests.engine.run_checker import RunChecker

VOCAB = 3
EOS = VOCAB - 1
VERBS = {
    "extend": 8, "step": 16, "fork": 2, "rewind": 2, "stop": 1, "close": 1, "open": 2, "focus": 1,
    "limit": 1, "pin": 1, "unpin": 0.5, "evict": 0.5, "flush": 0.1, "keyframe": 0.2,
    "fault": 1, "search": 1, "end_search": 0.3, "answers": 0.7,
}  # fmt: skip
STATS = ("preemptions", "swaps_out", "swaps_in", "copies", "evictions", "prefix_hits", "prefill_tokens")


class FaultError(Exception):
    """A runner broke off."""


class Faults:
    """Breaks a step off: anywhere and for everybody, or whenever one sequence is in the batch."""

    PLACES = ("begun", "in a move", "moved", "writing", "written")

    def __init__(self, choose: random.Random, seen: Counter[str], name: str = "") -> None:
        self.random, self.seen, self.name = choose, seen, name
        self.place, self.culprit, self.error = "", 0, BaseException

    def arm(self, seq_id: int) -> None:
        self.place = self.random.choice(self.PLACES)
        self.error = self.random.choice([FaultError, KeyboardInterrupt])
        self.culprit = seq_id if self.error is FaultError and self.random.random() < 0.5 else 0

    def __call__(self, place: str, batch: SchedulerOutput) -> None:
        if place != self.place or self.random.random() < 0.2:
            return
        if self.culprit:
            if all(part.sequence.seq_id != self.culprit for part in batch.scheduled):
                return
            if len(batch.scheduled) == 1:
                self.place = ""
        else:
            self.place = ""
        self.seen[f"{self.name}fault {place}{' of one' if self.culprit else ''}"] += 1
        raise self.error


class Walk:
    def __init__(self, seed: int) -> None:
        self.random = choose = random.Random(seed)
        self.seen: Counter[str] = Counter()
        size = choose.choice([1, 2, 4, 8])
        self.limits = EngineLimits(
            num_blocks=choose.randint(3, 24),
            num_host_blocks=choose.choice([0, 4, 64]),
            block_size=size,
            model_len=choose.choice([24, 60]),
            max_num_seqs=choose.randint(1, 6),
            max_num_batched_tokens=choose.choice([1, 4, 16, 200]),
            enable_prefix_caching=choose.random() < 0.7,
            preemption_mode=choose.choice(["recompute", "swap"]),
            eos_token_ids=frozenset({EOS}),
            reserve_ahead=choose.random() < 0.5,
            speculation=SpeculationConfig(
                **choose.choice([{"method": "lookup"}, {"method": "model", "model": "smaller"}, {"method": "off"}]),
                num_speculative_tokens=choose.choice([1, 3, 10]),
                prompt_lookup_min=choose.choice([1, 2]),
            ),
            most_draft_rows=choose.choice([2, 8, 32]),
        )
        simulator = BeamRunner(self.limits.num_blocks, size, self.limits.num_host_blocks, VOCAB)
        self.faults = simulator.at = Faults(choose, self.seen)
        self.runner = RunChecker(simulator)
        self.engine = EngineCore(self.limits, self.runner, draft=self.draft(seed))
        self.engine.scheduler.ahead.at_once = choose.choice([1, 2, 32])
        self.engine.scheduler.drafts.worth = choose.choice([None, None, Worth()])
        self.mirror = CacheMirror(self.limits.num_blocks, size, self.limits.num_host_blocks)
        self.expected: dict[int, list[int]] = {}
        self.searches: list[tuple[BeamGroup, list[Hypothesis]]] = []
        """Those under way, and what they must find."""
        self.answered: dict[int, list[int]] = {}
        """What every answer must be, by the first sequence of its group."""
        self.prompts = [[choose.randrange(VOCAB) for _ in range(40)] for _ in range(3)]

    def draft(self, seed: int) -> DraftRunner | None:
        """A smaller model, which breaks now and then for good."""
        if self.limits.speculation.method != "model":
            return None
        choose = random.Random(seed)
        smaller = SmallerModel(self.limits.num_blocks, self.limits.block_size, 0, VOCAB)
        if choose.random() < 0.2:
            smaller.at = Faults(choose, self.seen, "draft ")
            smaller.at.arm(0)
        return DraftRunner(smaller, choose.choice([20, 60]))

    def run(self, num_operations: int) -> Counter[str]:
        """So many operations; then what limit and pins allow; then, without them, all that was asked for."""
        for verb in self.random.choices(list(VERBS), list(VERBS.values()), k=num_operations):
            getattr(self, verb)()
            self.check()
        self.drain()
        self.engine.controls.set_limit(None)
        self.engine.controls.unpin()
        self.check()
        self.drain()
        assert not self.expected, "some request has no reply"
        assert not self.searches, "some search is not over"
        self.engine.groups.carry_out()  # whose first one was closed before it ran, the next step would have found
        assert not self.engine.groups.are_due
        assert self.engine.watch.violation is None
        self.seen["runs"] = self.runner.num_in_runs
        return self.seen + Counter({k: getattr(self.engine.stats(), k) for k in STATS})

    def drain(self) -> None:
        """Step until nothing more can be done. That there is an end to it is part of the test."""
        for _ in range(5000):
            if not self.engine.has_work:
                return
            self.step()
            self.check()
        raise AssertionError("the engine turns round and round")

    def pick(self, *statuses: str):
        """Some sequence that is no beam: a beam is its search's alone."""
        beams = {seq_id for group in self.engine.groups.searches.values() for seq_id in group.seq_ids}
        found = [s for s in self.engine.sequences.values() if not statuses or s.status in statuses]
        found = [s for s in found if s.seq_id not in beams]
        return self.random.choice(found) if found else None

    # --- verbs --------------------------------------------------------------------------------------

    def open(self) -> None:
        if len(self.engine.sequences) < 10:
            self.engine.open()

    def extend(self) -> None:
        seq = self.pick("parked")
        if seq is None:
            return
        base = self.random.choice(self.prompts)
        prompt = (
            base[: self.random.randint(0, len(base))] if not seq.token_ids else base[: self.random.randint(0, 3)]
        )
        ignore_eos = self.random.random() < 0.7
        params = SamplingParams(max_tokens=self.random.choice([1, 3, 20, None]), ignore_eos=ignore_eos)
        try:
            self.engine.extend(seq.seq_id, prompt, params)
        except RequestError:
            self.seen["refused"] += 1
            return
        room = self.limits.max_len - len(seq)
        budget = room if params.max_tokens is None else min(room, params.max_tokens)
        stop = frozenset() if ignore_eos else self.limits.eos_token_ids
        self.expected[seq.seq_id] = expected_reply(seq.token_ids, VOCAB, budget, stop)

    def fork(self) -> None:
        seq = self.pick()
        if seq is None or len(self.engine.sequences) >= 10:
            return
        unwritten = max(0, len(seq.block_table) - self.engine.blocks.num_blocks_for(seq.num_computed))
        in_use = self.engine.blocks.pool.num_in_use
        child = self.engine.fork(seq.seq_id)
        assert self.engine.blocks.pool.num_in_use == in_use - unwritten, "a fork takes no block"
        self.seen[f"fork {seq.status}"] += 1
        if seq.seq_id in self.expected:
            self.expected[child] = self.expected[seq.seq_id]

    def rewind(self) -> None:
        seq = self.pick()
        if seq is not None:
            self.seen[f"rewind {seq.status}"] += 1
            self.engine.rewind(seq.seq_id, self.random.randint(0, len(seq)))
            self.expected.pop(seq.seq_id, None)

    def stop(self) -> None:
        seq = self.pick()
        if seq is not None:
            self.engine.stop(seq.seq_id)
            self.expected.pop(seq.seq_id, None)

    def close(self) -> None:
        seq = self.pick()
        if seq is not None:
            self.seen[f"close {seq.status}"] += 1
            self.engine.close(seq.seq_id)
            self.expected.pop(seq.seq_id, None)

    def answers(self) -> None:
        """Several answers to one prompt, of a new sequence."""
        if len(self.engine.sequences) >= 8:
            return
        base = self.random.choice(self.prompts)
        prompt, n = base[: self.random.randint(1, len(base))], self.random.randint(2, 4)
        params = SamplingParams(n=n, max_tokens=self.random.choice([1, 4, 15]), ignore_eos=True)
        first = self.engine.open()
        try:
            self.engine.extend(first, prompt, params)
        except RequestError:
            self.engine.close(first)
            self.seen["answers refused"] += 1
            return
        budget = min(params.max_tokens or 0, self.limits.max_len - len(prompt))
        self.expected[first] = self.answered[first] = expected_reply(prompt, VOCAB, budget)

    def search(self) -> None:
        """A beam search."""
        if len(self.searches) >= 2:
            return
        base = self.random.choice(self.prompts)
        prompt = base[: self.random.randint(0, len(base))]
        width, length = self.random.randint(1, 4), self.random.choice([1, 3, 9])
        params = BeamSearchParams(
            width,
            length,
            ignore_eos=self.random.random() < 0.5,
            length_penalty=self.random.choice([0.0, 1.0, -1.0]),
        )
        try:
            group = self.engine.groups.search(prompt, params)
        except RequestError:
            self.seen["search refused"] += 1
            return
        self.searches.append((group, expected_search(prompt, params, self.limits.eos_token_ids)))

    def end_search(self) -> None:
        if self.searches:
            group, _ = self.searches.pop(self.random.randrange(len(self.searches)))
            self.engine.groups.end(group)
            assert not any(seq.group is group for seq in self.engine.sequences.values())
            self.seen["search ended"] += 1

    def check_searches(self) -> None:
        """Those that are over have found what they must."""
        for group, wanted in self.searches.copy():
            if group.is_over:
                self.searches.remove((group, wanted))
                self.seen["search failed" if group.error else "search over"] += 1
                if group.error is None:
                    assert [one.token_ids for one in group.hypotheses()] == [one.token_ids for one in wanted]

    def focus(self) -> None:
        seq = self.pick()
        if seq is not None:
            self.engine.set_priority(seq.seq_id, self.random.randint(0, 2))

    # --- the hand on the pool -----------------------------------------------------------------------

    def limit(self) -> None:
        count = self.random.choice([None, self.random.randint(1, self.limits.num_blocks)])
        self._control("limit", lambda: self.engine.controls.set_limit(count))
        assert self.engine.controls.limit in {None, self.engine.blocks.pool.num_usable}

    def pin(self) -> None:
        self._control("pin", lambda: self.engine.controls.pin(self._some_block()))

    def unpin(self) -> None:
        pinned = list(self.engine.blocks.pool.pinned)
        block_id = self.random.choice([None, *pinned, self._some_block()])
        self._control("unpin", lambda: self.engine.controls.unpin(block_id))

    def evict(self) -> None:
        self._control("evict", lambda: self.engine.controls.evict(self._some_block()))

    def flush(self) -> None:
        self._control("flush", self.engine.controls.flush)

    def _some_block(self) -> int:
        """Mostly one for which there is something to do."""
        findable = [entry.block_id for entry in self.engine.blocks.cache.entries()]
        every = list(range(self.limits.num_blocks))
        return self.random.choice(findable if findable and self.random.random() < 0.8 else every)

    def _control(self, name: str, action) -> None:
        try:
            action()
            self.seen[name] += 1
        except RequestError as error:
            self.seen[f"{name} refused"] += bool(error.hint)

    # --- steps and checks ---------------------------------------------------------------------------

    def step(self) -> None:
        if not self.engine.has_work:
            return
        try:
            report = self.engine.step()
        except (FaultError, KeyboardInterrupt):
            return
        self.note(report)
        self.seen["steps" if report.batch else "stalls"] += 1
        assert (
            sum(entry.num_prefill + entry.num_decode for entry in report.batch)
            <= self.limits.max_num_batched_tokens
        )
        assert len(self.engine.scheduler.queues.running) <= self.limits.max_num_seqs
        self.check_searches()
        assert_replies(self.expected, self.engine)

    def note(self, report: StepReport) -> None:
        self.mirror.apply(report)
        for entry in report.batch:
            self.seen["drafted"] += entry.num_drafted
            self.seen["accepted"] += entry.num_accepted
            self.seen["rejected"] += entry.num_drafted - entry.num_accepted
        for event in report.events:
            self.seen["contents lost"] += isinstance(event, ContentsLost)
            self.seen["ended by errors"] += isinstance(event, SequenceParked) and event.reason == "error"
            if isinstance(event, BlocksFreed):
                self.seen[event.cause] += 1
            if isinstance(event, SequenceForked) and event.grouped and event.seq_id in self.answered:
                self.seen["answer forked"] += 1
                if event.child_id in self.engine.sequences:
                    self.expected[event.child_id] = self.answered[event.seq_id]

    def fault(self) -> None:
        """Something breaks in one of the next steps."""
        self.faults.arm(self.random.choice([0, *self.engine.sequences]))

    def keyframe(self) -> None:
        """Go on with a copy of the mirror that went through bytes."""
        copy = copied(self.mirror)
        assert copy == self.mirror
        self.mirror = copy

    def check(self) -> None:
        self.engine.check_integrity()
        report = self.engine.flush()
        if report is not None:
            self.note(report)
        if self.mirror.last is not None:
            assert_mirror_equals(self.mirror, self.engine)

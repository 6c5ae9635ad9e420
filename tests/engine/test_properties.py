"""Any workload: every invariant after every operation, every read checked, the mirror always equal.

Hypothesis looks for the smallest failing workload here; test_random_walk.py covers long, crowded ones.
"""

from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pagedchat.config import SpeculationConfig
from pagedchat.engine.core import EngineCore
from pagedchat.engine.groups.beam_params import BeamSearchParams
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.mirror import CacheMirror
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.speculation.draft_model import DraftRunner
from pagedchat.errors import RequestError
from tests.engine.checks import assert_mirror_equals, assert_replies
from tests.engine.groups.beam_model import BeamRunner, expected_search
from tests.engine.kv_simulator import SmallerModel, expected_reply
from tests.engine.run_checker import RunChecker

VOCAB = 3
TOKENS = st.lists(st.integers(0, VOCAB - 1), min_size=0, max_size=24)


class Workload(RuleBasedStateMachine):
    """Opens, extends, forks, rewinds, stops and closes sequences in any order, with steps in between."""

    @initialize(
        num_blocks=st.integers(2, 12),
        num_host_blocks=st.sampled_from([0, 3, 12]),
        block_size=st.sampled_from([1, 2, 4]),
        max_num_seqs=st.integers(1, 5),
        budget=st.sampled_from([1, 3, 8, 64]),
        caching=st.booleans(),
        mode=st.sampled_from(["recompute", "swap"]),
        at_once=st.sampled_from([None, 1, 32]),
        most_drafted=st.sampled_from([0, 1, 5]),
        by_model=st.booleans(),
    )
    def start(
        self, num_blocks, num_host_blocks, block_size, max_num_seqs, budget, caching, mode, at_once, most_drafted,
        by_model,
    ):  # fmt: skip
        limits = EngineLimits(
            num_blocks=num_blocks,
            num_host_blocks=num_host_blocks,
            block_size=block_size,
            model_len=40,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=budget,
            enable_prefix_caching=caching,
            preemption_mode=mode,
            eos_token_ids=frozenset({VOCAB}),
            reserve_ahead=at_once is not None,
            speculation=SpeculationConfig(
                method="off" if not most_drafted else "model" if by_model else "lookup",
                model="smaller" if most_drafted and by_model else None,
                num_speculative_tokens=most_drafted or 1,
                prompt_lookup_min=1,
            ),
        )
        self.runner = RunChecker(BeamRunner(num_blocks, block_size, num_host_blocks, VOCAB))
        draft = DraftRunner(SmallerModel(num_blocks, block_size, 0, VOCAB), model_len=36) if by_model else None
        self.engine = EngineCore(limits, self.runner, draft=draft)
        self.engine.scheduler.ahead.at_once = at_once or 1
        self.engine.scheduler.drafts.worth = None
        self.mirror = CacheMirror(num_blocks, block_size, num_host_blocks)
        self.expected: dict[int, list[int]] = {}
        self.searches = []

    def some(self, data, *statuses):
        beams = [seq_id for group in self.engine.groups.searches.values() for seq_id in group.seq_ids]
        found = [s for s in self.engine.sequences.values() if not statuses or s.status in statuses]
        found = [s for s in found if s.seq_id not in beams]
        return data.draw(st.sampled_from(found)) if found else None

    @rule()
    def open(self):
        if len(self.engine.sequences) < 8:
            self.engine.open()

    @rule(data=st.data(), tokens=TOKENS, max_tokens=st.integers(1, 12), priority=st.integers(0, 1))
    def extend(self, data, tokens, max_tokens, priority):
        seq = self.some(data, "parked")
        if seq is None:
            return
        before = list(seq.token_ids)
        self.engine.set_priority(seq.seq_id, priority)
        try:
            self.engine.extend(seq.seq_id, tokens, SamplingParams(max_tokens=max_tokens))
        except RequestError:
            assert seq.token_ids == before
            assert seq.status == "parked"
            return
        room = self.engine.limits.max_len - len(seq)
        self.expected[seq.seq_id] = expected_reply(seq.token_ids, VOCAB, min(max_tokens, room))

    @rule(data=st.data())
    def fork(self, data):
        seq = self.some(data)
        if seq is not None and len(self.engine.sequences) < 8:
            unwritten = max(0, len(seq.block_table) - self.engine.blocks.num_blocks_for(seq.num_computed))
            in_use = self.engine.blocks.pool.num_in_use
            child = self.engine.fork(seq.seq_id)
            assert self.engine.blocks.pool.num_in_use == in_use - unwritten, "a fork takes no block"
            if seq.seq_id in self.expected and seq.status != "parked":
                self.expected[child] = self.expected[seq.seq_id]

    @rule(data=st.data(), share=st.floats(0, 1))
    def rewind(self, data, share):
        seq = self.some(data)
        if seq is not None:
            self.engine.rewind(seq.seq_id, int(share * len(seq)))
            self.expected.pop(seq.seq_id, None)

    @rule(data=st.data())
    def stop(self, data):
        seq = self.some(data)
        if seq is not None:
            self.engine.stop(seq.seq_id)
            self.expected.pop(seq.seq_id, None)

    @rule(data=st.data())
    def close(self, data):
        seq = self.some(data)
        if seq is not None:
            self.engine.close(seq.seq_id)
            self.expected.pop(seq.seq_id, None)

    @rule(prompt=TOKENS, width=st.integers(1, 4), max_tokens=st.integers(1, 6))
    def search(self, prompt, width, max_tokens):
        """Beams are forked and pruned at every step from now on."""
        if self.searches:
            return
        params = BeamSearchParams(width, max_tokens)
        try:
            group = self.engine.groups.search(prompt, params)
        except RequestError as error:
            event(f"refused: {error.message[:12]}")
            return
        self.searches.append((group, expected_search(prompt, params, self.engine.limits.eos_token_ids)))

    @rule()
    def end_search(self):
        for group, _ in self.searches:
            self.engine.groups.end(group)
        self.searches.clear()

    @rule(data=st.data(), tokens=TOKENS.filter(len), n=st.integers(2, 4), max_tokens=st.integers(1, 6))
    def answers(self, data, tokens, n, max_tokens):
        """Others are forked once the prompt is computed; what they say, nobody follows here."""
        if len(self.engine.sequences) < 6:
            first = self.engine.open()
            try:
                self.engine.extend(first, tokens, SamplingParams(n=n, max_tokens=max_tokens))
            except RequestError:
                self.engine.close(first)

    @rule(num_blocks=st.none() | st.integers(1, 12))
    def limit(self, num_blocks):
        self.control(lambda: self.engine.controls.set_limit(num_blocks))

    @rule(block_id=st.integers(0, 12), what=st.sampled_from(["pin", "unpin", "evict"]))
    def touch(self, block_id, what):
        self.control(lambda: getattr(self.engine.controls, what)(block_id))

    def control(self, action):
        try:
            action()
        except RequestError as error:
            event(f"refused: {error.message[:12]}")

    @precondition(lambda self: self.engine.has_work)
    @rule(count=st.integers(1, 6))
    def step(self, count):
        for _ in range(count):
            if self.engine.has_work:
                self.one_step()

    @precondition(lambda self: self.engine.has_work)
    @rule()
    def drain(self):
        """Whatever was asked for is done in the end, however few the blocks; unless a limit or pins forbid it."""
        for _ in range(4000):
            if not self.engine.has_work:
                break
            self.one_step()
        assert not self.engine.has_work
        assert not (self.expected or self.searches) or self.engine.scheduler.held_back
        for status in ("preemptions", "swaps_out", "copies", "evictions", "prefix_hits"):
            if getattr(self.engine.stats(), status):
                event(f"{status} happened")

    def one_step(self):
        report = self.engine.step()
        limits = self.engine.limits
        assert sum(e.num_prefill + e.num_decode for e in report.batch) <= limits.max_num_batched_tokens
        assert len(self.engine.scheduler.queues.running) <= limits.max_num_seqs
        self.mirror.apply(report)
        following = self.engine.flush()  # what a search, or a prompt of several answers, has led to
        if following is not None:
            self.mirror.apply(following)
        assert_mirror_equals(self.mirror, self.engine)
        self.engine.check_integrity()
        assert_replies(self.expected, self.engine)
        for group, wanted in self.searches.copy():
            if group.is_over:
                self.searches.remove((group, wanted))
                assert [one.token_ids for one in group.hypotheses()] == [one.token_ids for one in wanted]
                event("search over")

    @invariant()
    def integrity_and_mirror(self):
        if not hasattr(self, "engine"):
            return
        self.engine.check_integrity()
        report = self.engine.flush()
        if report is not None:
            self.mirror.apply(report)
        if self.mirror.last is not None:
            assert_mirror_equals(self.mirror, self.engine)


TestWorkload = Workload.TestCase
TestWorkload.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

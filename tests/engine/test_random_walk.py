"""Long, crowded random workloads: scarcity of every kind, every read checked, the mirror equal after every step."""

import random
from collections import Counter

import pytest

from pagedchat.engine.core import EngineCore
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.mirror import CacheMirror
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.errors import RequestError
from tests.engine.checks import assert_mirror_equals, assert_replies
from tests.engine.kv_simulator import KVSimulator, expected_reply

VOCAB = 3
EOS = VOCAB - 1
VERBS = {"extend": 8, "step": 16, "fork": 2, "rewind": 2, "stop": 1, "close": 1, "open": 2, "focus": 1}


class Walk:
    def __init__(self, seed: int) -> None:
        self.random = choose = random.Random(seed)
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
        )
        self.runner = KVSimulator(self.limits.num_blocks, size, self.limits.num_host_blocks, VOCAB)
        self.engine = EngineCore(self.limits, self.runner)
        self.mirror = CacheMirror(self.limits.num_blocks, size, self.limits.num_host_blocks)
        self.expected: dict[int, list[int]] = {}
        self.seen: Counter[str] = Counter()
        self.prompts = [[choose.randrange(VOCAB) for _ in range(40)] for _ in range(3)]

    def run(self, num_operations: int) -> Counter[str]:
        for verb in self.random.choices(list(VERBS), list(VERBS.values()), k=num_operations):
            getattr(self, verb)()
            self.check()
        for _ in range(5000):
            if not self.engine.has_work:
                break
            self.step()
            self.check()
        assert not self.engine.has_work, "some request is never served"
        assert not self.expected, "some request has no reply"
        return self.seen + Counter({k: getattr(self.engine.stats(), k) for k in STATS})

    def pick(self, *statuses: str):
        found = [s for s in self.engine.sequences.values() if not statuses or s.status in statuses]
        return self.random.choice(found) if found else None

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
        in_use = self.engine.blocks.pool.num_in_use
        child = self.engine.fork(seq.seq_id)
        assert self.engine.blocks.pool.num_in_use == in_use, "a fork takes no block"
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

    def focus(self) -> None:
        seq = self.pick()
        if seq is not None:
            self.engine.set_priority(seq.seq_id, self.random.randint(0, 2))

    def step(self) -> None:
        if not self.engine.has_work:
            return
        self.mirror.apply(self.engine.step())
        self.seen["steps"] += 1
        assert self.runner.batch_sizes[-1] <= self.limits.max_num_batched_tokens
        assert len(self.engine.scheduler.queues.running) <= self.limits.max_num_seqs
        assert_replies(self.expected, self.engine)

    def check(self) -> None:
        self.engine.check_integrity()
        report = self.engine.flush()
        if report is not None:
            self.mirror.apply(report)
        if self.mirror.last is not None:
            assert_mirror_equals(self.mirror, self.engine)


STATS = ("preemptions", "swaps_out", "swaps_in", "copies", "evictions", "prefix_hits", "prefill_tokens")
WALKS = 200
OPERATIONS = 250


@pytest.fixture(scope="module")
def totals() -> Counter[str]:
    return sum((Walk(seed).run(OPERATIONS) for seed in range(WALKS)), Counter())


def test_walks_meet_every_kind_of_scarcity_and_verb(totals: Counter[str]) -> None:
    wanted = [*STATS, "fork running", "fork swapped", "fork parked", "fork waiting", "rewind running"]
    wanted += ["rewind swapped", "close running", "close swapped", "close waiting", "refused"]
    assert {name: totals[name] for name in wanted if totals[name] < 10} == {}


def test_walks_are_long_enough_to_mean_something(totals: Counter[str]) -> None:
    assert totals["steps"] > WALKS * OPERATIONS / 4

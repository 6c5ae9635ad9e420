"""A draft model over the same blocks: what it reads is there, it reads nothing twice, and nothing depends on it."""

import logging
import time
from collections.abc import Callable

import pytest

from pagedchat.config import SpeculationConfig
from pagedchat.engine.core import EngineCore
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.output import SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.speculation.draft_model import DraftRunner
from pagedchat.engine.speculation.reading import CHUNK_TOKENS
from pagedchat.engine.speculation.worth import Worth
from pagedchat.errors import RequestError
from tests.engine.kv_simulator import KVSimulator, SmallerModel, expected_reply

VOCAB, SIZE, BLOCKS = 50, 4, 200
PROMPT = list(range(21))


class Rig:
    """An engine with a draft model that is right; both check every read of their caches."""

    def __init__(
        self,
        smaller: KVSimulator | None = None,
        model_len: int = 1000,
        worth: Worth | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.smaller = smaller or KVSimulator(BLOCKS, SIZE, 0, VOCAB)
        speculation = SpeculationConfig(method="model", model="smaller", num_speculative_tokens=4)
        limits = EngineLimits(num_blocks=BLOCKS, block_size=SIZE, num_host_blocks=BLOCKS, speculation=speculation)
        runner = KVSimulator(BLOCKS, SIZE, BLOCKS, VOCAB)
        self.core = EngineCore(limits, runner, draft=DraftRunner(self.smaller, model_len), clock=clock)
        self.core.scheduler.drafts.worth = worth

    def ask(
        self, prompt: list[int] = PROMPT, max_tokens: int = 20, seq_id: int | None = None, **params: object
    ) -> int:
        seq_id = self.core.open() if seq_id is None else seq_id
        self.core.extend(seq_id, prompt, SamplingParams(max_tokens=max_tokens, ignore_eos=True, **params))
        return seq_id

    def finish(self) -> None:
        while self.core.has_work:
            self.core.step()
            self.core.check_integrity()

    def drafted(self) -> tuple[int, int]:
        stats = self.core.stats()
        return stats.draft_tokens, stats.accepted_tokens

    def read(self) -> int:
        """Tokens that the draft model has computed."""
        return sum(self.smaller.batch_sizes)


def test_a_draft_that_is_right_is_accepted_whole():
    rig = Rig()
    seq_id = rig.ask()
    rig.finish()
    assert rig.core.sequences[seq_id].output_token_ids == expected_reply(PROMPT, VOCAB, 20)
    drafted, accepted = rig.drafted()
    assert drafted == accepted == 15
    assert rig.core.stats().steps == 5, "the prompt, and three times five tokens, and the rest"


def test_a_text_is_read_once():
    """Its last accepted token is read with the next draft; no other token is read again."""
    rig = Rig()
    rig.ask()
    rig.finish()
    assert rig.read() <= len(PROMPT) + 20


def test_the_next_turn_a_fork_and_a_prompt_with_the_same_beginning_read_what_is_new():
    rig = Rig()
    first = rig.ask()
    rig.finish()
    before = rig.read()
    rig.ask([7, 8], seq_id=first, max_tokens=6)
    rig.finish()
    child = rig.core.fork(first)
    rig.ask([9], seq_id=child, max_tokens=6)
    rig.finish()
    rig.ask([*PROMPT, 1], max_tokens=6)
    rig.finish()
    assert rig.read() - before <= 2 + 1 + SIZE + 3 * (6 + 2), "a block was copied, which is read again"


def test_what_was_in_host_memory_is_read_again_before_it_drafts():
    rig = Rig()
    seq_id = rig.ask(max_tokens=30)
    for _ in range(3):
        rig.core.step()
    seq = rig.core.sequences[seq_id]
    rig.core.scheduler._take_blocks_from(seq, seq)
    rig.finish()
    assert rig.core.sequences[seq_id].output_token_ids == expected_reply(PROMPT, VOCAB, 30)
    assert rig.read() > len(PROMPT) + 30


def test_a_long_prompt_is_read_a_chunk_a_step_and_drafts_begin_behind_it():
    rig = Rig()
    rig.ask([number % VOCAB for number in range(2 * CHUNK_TOKENS + 9)])
    rig.finish()
    assert max(rig.smaller.batch_sizes) == CHUNK_TOKENS
    assert rig.drafted()[1] > 0


def test_nothing_is_drafted_past_what_the_draft_model_can_read():
    rig = Rig(model_len=len(PROMPT) + 6)
    seq_id = rig.ask()
    rig.finish()
    assert 0 < rig.drafted()[0] <= 6
    assert rig.core.sequences[seq_id].output_token_ids == expected_reply(PROMPT, VOCAB, 20)


def test_forks_that_lack_the_same_block_read_it_one_after_the_other():
    """Both need what stands in a block of theirs; nobody writes to a slot that another one writes to in a pass."""
    rig = Rig()
    rig.core.scheduler.drafts.is_on = False
    first = rig.ask(max_tokens=30)
    for _ in range(4):
        rig.core.step()
    for _ in range(3):
        rig.core.fork(first)
    rig.core.scheduler.drafts.is_on = True
    rig.finish()
    assert rig.drafted()[1] > 0


class Breaking(SmallerModel):
    """A draft model that raises."""

    def execute(self, batch: SchedulerOutput):
        raise RuntimeError("CUDA error: out of memory\nmore of it")


def test_a_draft_model_that_raises_drafts_no_more_and_replies_go_on(caplog: pytest.LogCaptureFixture):
    rig = Rig(Breaking(BLOCKS, SIZE, 0, VOCAB))
    with caplog.at_level(logging.WARNING):
        seq_ids = [rig.ask(), rig.ask([1, 2, 3])]
        rig.finish()
    said = "The draft model drafts no more, and replies go on without: CUDA error: out of memory."
    assert [record.getMessage() for record in caplog.records] == [said]
    for seq_id, prompt in zip(seq_ids, (PROMPT, [1, 2, 3]), strict=True):
        assert rig.core.sequences[seq_id].output_token_ids == expected_reply(prompt, VOCAB, 20)
    assert rig.drafted() == (0, 0)


def test_a_broken_invariant_is_not_the_draft_models_affair():
    rig = Rig()
    rig.ask()
    rig.core.step()
    rig.core.step()
    rig.smaller.device[rig.core.sequences[1].block_table[1]] = [None] * SIZE
    with pytest.raises(AssertionError, match="reads another's KV"):
        rig.finish()


def test_interrupted_while_it_drafts_the_batch_is_made_anew():
    rig = Rig()
    seq_id = rig.ask()
    rig.core.step()

    def interrupt(place: str, batch: SchedulerOutput) -> None:
        rig.smaller.at = lambda place, batch: None
        raise KeyboardInterrupt

    rig.smaller.at = interrupt
    with pytest.raises(KeyboardInterrupt):
        rig.core.step()
    rig.core.check_integrity()
    rig.finish()
    assert rig.core.sequences[seq_id].output_token_ids == expected_reply(PROMPT, VOCAB, 20)


def test_each_chat_decides():
    rig = Rig()
    for method in ("off", "lookup"):
        rig.ask([1, 2, 1, 2, 1, 2], speculate=method)
        rig.finish()
    assert rig.read() == 0
    rig.ask(speculate="model")
    rig.finish()
    assert rig.drafted()[1] > 0


def test_without_a_draft_model_asking_for_one_is_refused_and_nothing_is_held():
    core = EngineCore(EngineLimits(num_blocks=8, block_size=4), KVSimulator(8, 4))
    seq_id = core.open()
    with pytest.raises(RequestError, match="speculate is 'model', but there is no draft model"):
        core.extend(seq_id, [1, 2], SamplingParams(speculate="model"))
    assert core.sequences[seq_id].token_ids == []
    assert not core.has_work


def test_counters_and_batches_tell_of_a_models_drafts_as_of_others():
    rig = Rig(SmallerModel(BLOCKS, SIZE, 0, VOCAB))
    rig.ask(max_tokens=60)
    entries = []
    while rig.core.has_work:
        report = rig.core.step()
        entries += list(report.batch)
    counters = report.counters
    assert counters.draft_tokens == sum(entry.num_drafted for entry in entries) > 0
    assert counters.accepted_tokens == sum(entry.num_accepted for entry in entries) < counters.draft_tokens
    assert counters.drafts == sum(entry.num_drafted > 0 for entry in entries)


def test_where_drafts_do_not_pay_steps_do_not_even_look_for_them():
    """Of a run of plain decodes all but a few steps are left alone; whoever needs the draft model next finds that
    it has nothing of blocks that others had before."""
    batches = []
    rig = Rig(worth=Worth(), clock=lambda: 0.001 * len(batches))  # either model takes as long, however busy this is
    for runner in (rig.smaller, rig.core.runner):
        execute = runner.execute
        runner.execute = lambda batch, execute=execute: batches.append(1) or execute(batch)  # type: ignore[method-assign,func-returns-value]
    planned = []
    plan = rig.core.scheduler.drafts._all_drafts
    rig.core.scheduler.drafts._all_drafts = lambda running, left: planned.append(1) or plan(running, left)  # type: ignore[method-assign,func-returns-value]
    rig.core.scheduler.drafts._by_model._chance = 0.05
    rig.ask(max_tokens=200)
    num_steps = 0
    while rig.core.has_work:
        rig.core.step()
        num_steps += 1
        model = rig.core.scheduler.drafts._by_model.model
        for seq in rig.core.sequences.values():
            assert model.num_known(seq) <= seq.num_computed
    assert num_steps > 150
    assert 0 < len(planned) < num_steps // 4

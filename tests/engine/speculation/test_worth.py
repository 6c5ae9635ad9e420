"""Drafts that do not pay are made less and less, whatever a step costs; those that pay are made."""

import random

import pytest

from pagedchat.config import SpeculationConfig
from pagedchat.engine.core import EngineCore
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.output import ModelRunnerOutput, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.speculation.draft_model import DraftRunner
from pagedchat.engine.speculation.worth import Worth
from tests.fakes import FakeClock


def decode(worth: Worth, num_steps: int, row_cost: float, chance: float, num_sequences: int = 1) -> float:
    """How many times the tokens a second of plain decoding: a plain step takes a second."""
    source, seconds, tokens = random.Random(3), 0.0, 0
    for _ in range(num_steps):
        tokens += num_sequences
        drafted = min(4 * num_sequences, worth.most_drafted)
        if not worth.may_draft(num_sequences) or not worth.pays(num_sequences, drafted, 0.75 * drafted):
            worth.note_plain(num_sequences, 1.0)
            seconds += 1.0
            continue
        num_drafted, num_accepted = drafted, 0
        while num_accepted < num_drafted and source.random() < chance:
            num_accepted += 1
        took = 1.0 + row_cost * num_drafted
        worth.note_drafted(num_sequences, num_drafted, num_accepted, took)
        seconds += took
        tokens += num_accepted
    return tokens / seconds / num_sequences


@pytest.mark.parametrize(
    ("row_cost", "num_sequences"), [(0.01, 1), (0.1, 1), (0.5, 1), (3.0, 1), (0.01, 8), (0.1, 8), (0.5, 8)]
)
def test_drafts_that_are_never_right_cost_little(row_cost, num_sequences):
    assert decode(Worth(), 1500, row_cost, 0.0, num_sequences) > 0.97


def test_drafts_that_are_right_are_made():
    assert decode(Worth(), 1500, 0.1, 0.97) > 2


def test_what_was_gained_is_not_all_lost_again():
    worth = Worth()
    decode(worth, 500, 0.1, 0.97)
    assert decode(worth, 1500, 0.5, 0.0) > 0.97


def test_nothing_is_drafted_before_a_step_without_was_measured():
    worth = Worth()
    assert not worth.may_draft(2)
    for _ in range(4):
        worth.note_plain(2, 0.01)
    assert worth.may_draft(2)
    assert not worth.may_draft(3)


def measured(extra: dict[int, float]) -> Worth:
    """A step without drafts takes a second, one with so many drafted tokens so many seconds more."""
    worth = Worth()
    for _ in range(4):
        worth.note_plain(1, 1.0)
    worth.may_draft(1)
    for _ in range(40):
        for num_drafted, seconds in extra.items():
            worth.note_drafted(1, num_drafted, num_drafted, 1.0 + seconds)
    return worth


def test_where_each_token_costs_drafts_are_as_long_as_their_chance_allows():
    worth = measured({k: 0.3 * k for k in (1, 2, 4, 8)})
    assert worth.best_length(1, 0.98, 10) >= 8
    assert 1 <= worth.best_length(1, 0.6, 10) <= 4
    assert worth.best_length(1, 0.2, 10) == 0


def test_where_the_step_costs_drafts_are_long_or_not_at_all():
    worth = measured(dict.fromkeys((1, 2, 4, 8), 3.0))
    assert worth.best_length(1, 0.95, 10) == 10
    assert worth.best_length(1, 0.6, 10) == 0
    worth.note_drafted(1, 10, 10, 3.0)  # whose gain is in the balance
    assert worth.pays(1, 10, 5.0)
    assert not worth.pays(1, 10, 2.0)


def test_what_drafts_cost_once_is_forgotten_in_time():
    worth = measured({4: 5.0})
    assert worth.best_length(1, 0.9, 4) == 0
    for _ in range(4000):
        worth.note_plain(1, 1.0)
    assert worth.best_length(1, 0.9, 4) == 4


def test_a_pass_of_a_draft_model_costs_what_its_size_says_until_it_was_measured():
    worth = measured({k: 0.01 * k for k in (1, 2, 4, 8)})
    assert worth.pass_seconds(1, 0.1) == pytest.approx(0.1)
    assert worth.best_length(1, 0.9, 10, worth.pass_seconds(1, 0.1)) > 2
    assert worth.best_length(1, 0.9, 10, worth.pass_seconds(1, 1.0)) == 0
    worth.note_passes(1, 4, 2.0)
    assert worth.pass_seconds(1, 0.1) == pytest.approx(0.5)
    assert not worth.pays(1, 4, 1.0, 4 * 0.5)
    for _ in range(1500):
        worth.note_plain(1, 1.0)
    assert worth.pass_seconds(1, 0.1) == pytest.approx(0.1), "what it cost once is forgotten in time"


def test_what_a_draft_model_reads_comes_from_the_reserve_and_for_trial_from_the_balance():
    worth = measured({4: 0.1})
    assert worth.readable(is_trial=True) == worth.readable(is_trial=False) > 0, "until it was measured"
    worth.note_read(10, 1.0, is_trial=False)
    assert 0 < worth.readable(is_trial=True) < worth.readable(is_trial=False)
    before = worth.readable(is_trial=True)
    worth.note_read(10, 3.0, is_trial=True)
    assert worth.readable(is_trial=True) < before
    for _ in range(40):
        worth.note_drafted(1, 4, 0, 1.3)
    assert worth.readable(is_trial=True) == 0
    assert worth.readable(is_trial=False) > 0


def test_a_text_is_read_where_the_rest_of_the_reply_wins_it_back():
    worth = measured({k: 0.05 * k for k in (1, 2, 4, 8)})
    assert worth.wins_back(1, 0.9, 4, 0.1, 128, 500)
    assert not worth.wins_back(1, 0.9, 4, 0.1, 128, 2), "there is next to nothing left"
    assert not worth.wins_back(1, 0.9, 4, 0.9, 128, 500), "drafts gain nothing"
    worth.note_read(32, 100.0, is_trial=False)
    assert not worth.wins_back(1, 0.9, 4, 0.1, 128, 150), "it takes longer than what is left"


@pytest.mark.parametrize(("row_cost", "num_sequences"), [(0.5, 1), (2.0, 1), (4.0, 1), (1.0, 8), (3.0, 8)])
def test_where_a_step_costs_by_its_rows_drafts_that_are_never_right_cost_little(row_cost, num_sequences):
    worth, seconds = Worth(by_rows=True), 0.0
    for _ in range(1500):
        cut = worth.best_cut(num_sequences, [(15, 0.85)] * num_sequences) if worth.may_draft(num_sequences) else 0
        took = 1.0 + row_cost if cut else 1.0
        seconds += took
        if cut:
            worth.note_drafted(num_sequences, cut * num_sequences, 0, took)
        else:
            worth.note_plain(num_sequences, took)
    assert 1500 / seconds > 0.97


def test_drafts_are_cut_to_the_rows_that_pay():
    worth = Worth(by_rows=True)
    for _ in range(4):
        worth.note_plain(8, 1.0)
    assert worth.may_draft(8)
    for _ in range(20):  # 64 rows take twice a step, 128 eight times
        worth.note_drafted(8, 56, 56, 2.0)
        worth.note_drafted(8, 120, 120, 8.0)
    assert worth.best_cut(8, [(15, 0.95)] * 8) == 7
    assert worth.best_cut(8, [(15, 0.95)] * 4) == 14, "as many as fill 64 rows"
    assert worth.best_cut(8, [(15, 0.1)] * 8) == 0


def test_when_one_of_some_chats_has_ended_the_others_have_drafts_still():
    worth = Worth(by_rows=True)
    for _ in range(4):
        worth.note_plain(8, 1.0)
    assert worth.may_draft(8)
    assert worth.may_draft(7)
    assert not worth.may_draft(9)
    assert not worth.may_draft(3)


@pytest.mark.parametrize(("share", "chance"), [(0.1, 0.0), (0.3, 0.0), (0.5, 0.3), (1.0, 0.9)])
def test_a_draft_model_that_does_not_pay_costs_little(share, chance):
    assert gain(share, chance) >= 0.97


def test_a_draft_model_that_pays_is_used():
    assert gain(0.1, 0.85) > 2.2
    assert gain(0.1, 0.6) > 1.4


def gain(share: float, chance: float) -> float:
    """How many times the tokens a second of plain decoding: three chats, one after the other, whose prompts take
    five steps to be read; a plain step takes a second, a pass of the draft model a share of it, a row 0.02."""
    source, clock = random.Random(5), FakeClock()

    class Model:
        def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
            num_tokens = sum(part.num_tokens for part in batch.scheduled)
            clock.advance(share if num_tokens <= 4 else 5.0 * num_tokens / 200)
            return ModelRunnerOutput(
                [[int(source.random() < chance)] if p.samples else [] for p in batch.scheduled]
            )

        def check(self) -> None:
            """It never breaks."""

    class Target(Model):
        def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
            batch.block_ops.clear()
            clock.advance(1.0 + 0.02 * (batch.num_tokens - 1) if batch.num_tokens < 40 else 10.0)
            return ModelRunnerOutput([[1] if p.samples else [] for p in batch.scheduled])

    speculation = SpeculationConfig(method="model", model="smaller")
    limits = EngineLimits(num_blocks=400, speculation=speculation, enable_prefix_caching=False)
    core = EngineCore(limits, Target(), clock, draft=DraftRunner(Model(), 4000, share))
    for _ in range(3):
        seq_id = core.open()
        core.extend(seq_id, [1] * 200, SamplingParams(max_tokens=500, ignore_eos=True))
        while core.has_work:
            core.step()
        core.close(seq_id)
    seconds = clock() - 3 * 10.0
    return 3 * 499 / seconds

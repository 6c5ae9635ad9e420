"""What is kept of a draft: the tokens that would have come without it, and no other."""

from collections import Counter

import pytest

from pagedchat.config import SpeculationConfig
from pagedchat.engine.core import EngineCore
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.output import ModelRunnerOutput, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.speculation.settle import accepted
from pagedchat.ops.sampling.philox import philox_64

CHANCES = [0.5, 0.25, 0.15, 0.1]
CHI_SQUARE_3 = 16.27
"""Three degrees of freedom: passed once in a thousand times by chance."""


@pytest.mark.parametrize(
    ("draft", "sampled", "kept"),
    [
        ([5, 6, 7], [5, 6, 7, 8], [5, 6, 7, 8]),
        ([5, 6, 7], [5, 9, 7, 8], [5, 9]),
        ([5, 6, 7], [4, 6, 7, 8], [4]),
        ([2, 6], [2, 6, 8], [2]),
        ([5, 2, 6], [5, 2, 6, 8], [5, 2]),
    ],
)
def test_sampled_tokens_hold_up_to_the_first_that_was_not_drafted_or_ends_the_reply(draft, sampled, kept):
    assert accepted(draft, sampled, frozenset({2})) == kept


class Drawing:
    """A model of the same chances at every position, drawn from by seed and position, as the sampling op does."""

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        batch.block_ops.clear()
        return ModelRunnerOutput([[self.draw(p.sequence.seed, p.start + p.num_tokens)] for p in batch.scheduled])

    def check(self) -> None:
        """It never breaks."""

    @staticmethod
    def draw(seed: int, position: int) -> int:
        place = philox_64(seed, position) / 2**64
        for token, chance in enumerate(CHANCES):
            place -= chance
            if place < 0:
                return token
        return len(CHANCES) - 1


def replies(method: str, num_replies: int, length: int) -> tuple[list[list[int]], Counter[int], EngineCore]:
    """And how often each token came of a drafted position: one whose row was verified beside others."""
    limits = EngineLimits(
        num_blocks=200, block_size=4, model_len=400, max_num_seqs=8,
        speculation=SpeculationConfig(method=method, prompt_lookup_min=1),
    )  # fmt: skip
    core, at_drafts = EngineCore(limits, Drawing()), Counter()
    core.scheduler.drafts.worth = None
    for seed in range(num_replies):
        core.extend(core.open(), [0, 1, 2, 3] * 4, SamplingParams(max_tokens=length, seed=seed))
    while core.has_work:
        for entry in core.step().batch:
            at_drafts.update(entry.token_ids if entry.num_drafted else [])
    return [core.sequences[seq_id].output_token_ids for seq_id in core.sequences], at_drafts, core


def test_a_seed_gives_the_same_tokens_with_drafts_and_without():
    with_drafts, _, core = replies("lookup", 6, 120)
    assert with_drafts == replies("off", 6, 120)[0]
    drafts = core.scheduler.drafts
    assert 0 < drafts.num_accepted < drafts.num_drafted


def test_tokens_that_drafts_were_held_against_are_as_frequent_as_the_model_has_them():
    tokens, at_drafts, _ = replies("lookup", 8, 250)
    for counts in (Counter(token for reply in tokens for token in reply), at_drafts):
        total = sum(counts.values())
        expected = [chance * total for chance in CHANCES]
        assert total > 300
        assert sum((counts[i] - wanted) ** 2 / wanted for i, wanted in enumerate(expected)) < CHI_SQUARE_3

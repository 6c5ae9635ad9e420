"""A draft model through the whole engine: replies are those without it, greedy or drawn, whatever is scarce."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagedchat import LLM, SamplingParams, bundled
from pagedchat.bench.shallow_checkpoint import write_shallow
from tests.helpers_models import make_checkpoint

LENGTH = 40
GREEDY = SamplingParams(temperature=0, max_tokens=LENGTH, ignore_eos=True)
DRAWN = [
    SamplingParams(temperature=0.5, top_k=4, max_tokens=LENGTH, seed=1, ignore_eos=True),
    SamplingParams(temperature=0.3, presence_penalty=0.4, max_tokens=LENGTH, seed=2, ignore_eos=True),
    SamplingParams(temperature=0.4, min_p=0.2, repetition_penalty=1.1, max_tokens=LENGTH, seed=3, ignore_eos=True),
    SamplingParams(temperature=0.2, top_p=0.9, logit_bias={3: 2.0}, max_tokens=LENGTH, seed=4, ignore_eos=True),
]
SHARED = list(range(40, 60))
PROMPTS = [[5, 6, 7], [*SHARED, 8, *SHARED], [*SHARED, 9, 10, 11], [(7 * i) % 9 + 3 for i in range(40)]]
SCARCE = [
    {"num_blocks": 64},
    {"num_blocks": 64, "max_num_batched_tokens": 5, "enable_prefix_caching": False},
    {"num_blocks": 26, "block_size": 4, "preemption_mode": "swap", "swap_space": "1MiB"},
    {"num_blocks": 26, "block_size": 4, "preemption_mode": "recompute", "max_num_batched_tokens": 16},
    {"num_blocks": 64, "batch_invariant": True},
]


@pytest.fixture(scope="module", params=["opt", "llama"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def shallow(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first of its two layers."""
    folder = tmp_path_factory.mktemp("shallow")
    write_shallow(checkpoint, folder, [0])
    return folder


def load(checkpoint: Path, draft: Path | None, **arguments: object) -> LLM:
    config = None if draft is None else {"model": str(draft), "num_speculative_tokens": 6}
    llm = LLM(
        str(checkpoint),
        device="cpu",
        dtype="float32",
        skip_tokenizer_init=True,
        speculative_config=config,
        **arguments,
    )
    llm._engine._core.scheduler.drafts.worth = None  # whether it pays or not
    return llm


def replies(llm: LLM, params: SamplingParams | list[SamplingParams]) -> list[list[int]]:
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], params, use_tqdm=False)
    return [output.outputs[0].token_ids for output in outputs]


@pytest.fixture(scope="module")
def expected(checkpoint: Path) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
    with load(checkpoint, None, num_blocks=64) as llm:
        yield replies(llm, GREEDY), replies(llm, DRAWN)


@pytest.mark.parametrize("arguments", SCARCE, ids=["usual", "in pieces", "swap", "recompute", "batch invariant"])
def test_replies_are_those_without_drafts(checkpoint, shallow, expected, arguments):
    with load(checkpoint, shallow, **arguments) as llm:
        assert replies(llm, GREEDY) == expected[0]
        assert replies(llm, DRAWN) == expected[1]
        stats = llm.stats()
        assert 0 < stats.accepted_tokens < stats.draft_tokens
        assert (stats.preemptions > 0) == (arguments["num_blocks"] == 26)
        assert stats.blocks_in_use == 0


def test_a_model_that_drafts_for_itself_is_right_greedily_and_drawn(checkpoint, expected):
    """With the same random numbers as it draws with itself: a draft's tokens are as likely as the model's."""
    with load(checkpoint, checkpoint, num_blocks=64) as llm:
        assert replies(llm, GREEDY) == expected[0]
        assert replies(llm, DRAWN) == expected[1]
        stats = llm.stats()
        assert stats.accepted_tokens > 0.9 * stats.draft_tokens


def test_a_request_decides_for_itself(checkpoint, shallow, expected):
    wish = {"temperature": 0, "max_tokens": LENGTH, "ignore_eos": True}
    with load(checkpoint, shallow, num_blocks=64) as llm:
        assert replies(llm, SamplingParams(**wish, speculate="off")) == expected[0]
        assert llm.stats().drafts == 0
        for method in ("lookup", "model"):
            before = llm.stats().drafts
            assert replies(llm, SamplingParams(**wish, speculate=method)) == expected[0]
            assert llm.stats().drafts > before
        turns = [SamplingParams(**wish, speculate=each) for each in ("lookup", "model", "off", "model")]
        assert replies(llm, turns) == expected[0]


def test_what_is_told_token_by_token_is_told_as_without(checkpoint, shallow):
    """Nobody drafts for those, and the others beside them have theirs."""
    told = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=2, prompt_logprobs=1)
    plain = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    found = []
    for draft in (None, shallow):
        with load(checkpoint, draft, num_blocks=64) as llm:
            outputs = llm.generate(
                [{"prompt_token_ids": prompt} for prompt in PROMPTS], [told, plain, plain, told], use_tqdm=False
            )
            found.append([(o.outputs[0].token_ids, o.outputs[0].logprobs, o.prompt_logprobs) for o in outputs])
            assert (llm.stats().drafts > 0) == (draft is not None)
    assert [tokens for tokens, _, _ in found[0]] == [tokens for tokens, _, _ in found[1]]
    for (_, one, of_prompt), (_, other, also) in zip(*found, strict=True):
        assert (one is None) == (other is None)
        for place, same in zip([*(one or []), *(of_prompt or [])], [*(other or []), *(also or [])], strict=True):
            assert (place is None) == (same is None)
            for token, entry in (place or {}).items():
                assert same[token].logprob == pytest.approx(entry.logprob, abs=1e-4)


def test_tokens_are_as_frequent_as_without_drafts(checkpoint, shallow):
    """First and second tokens of many replies, drawn with other seeds in both."""
    counts = []
    for draft, first_seed in ((None, 0), (shallow, 10_000)):
        with load(checkpoint, draft, num_blocks=256, max_num_seqs=16) as llm:
            params = [
                SamplingParams(temperature=0.7, top_k=4, max_tokens=3, seed=first_seed + i, ignore_eos=True)
                for i in range(400)
            ]
            prompts = [{"prompt_token_ids": PROMPTS[0]}] * len(params)
            outputs = llm.generate(prompts, params, use_tqdm=False)
            counts.append(Counter(output.outputs[0].token_ids[1] for output in outputs))
            assert (llm.stats().drafts > 100) == (draft is not None)
    assert chi_square(*counts) < 3 * len(counts[0] | counts[1]) + 12


def chi_square(one: Counter[int], other: Counter[int]) -> float:
    """Of two samples of the same size; about as large as there are kinds, if both are of the same chances."""
    return sum((one[kind] - other[kind]) ** 2 / (one[kind] + other[kind]) for kind in one | other)


def test_the_model_in_the_box_says_the_same_and_stops_where_it_did(tmp_path):
    write_shallow(bundled.folder(), tmp_path, [0, 1, 4, 5])
    prompts, said = ["The sea. The sea. The sea", "Once upon a time"], []
    for config in (None, {"model": str(tmp_path)}):
        with LLM(device="cpu", num_blocks=128, speculative_config=config) as llm:
            llm._engine._core.scheduler.drafts.worth = None
            stops = SamplingParams(temperature=0, max_tokens=48, stop=["red b", "sea,"])
            outputs = llm.generate(prompts, GREEDY, use_tqdm=False) + llm.generate(prompts, stops, use_tqdm=False)
            said.append([(o.outputs[0].text, o.outputs[0].token_ids, o.outputs[0].finish_reason) for o in outputs])
            stats, info = llm.stats(), llm.info
    assert said[0] == said[1]
    assert stats.accepted_tokens > 0
    assert info.draft_model == str(tmp_path)
    assert info.draft_block_bytes == info.block_bytes * 4 // 6

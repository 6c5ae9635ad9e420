"""Prompt lookup through the whole engine: replies are those without it, greedy or drawn, whatever is scarce."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pagedchat import LLM, SamplingParams
from tests.helpers_models import make_checkpoint

LENGTH = 40
GREEDY = SamplingParams(temperature=0, max_tokens=LENGTH, ignore_eos=True)
DRAWN = [
    SamplingParams(temperature=0.5, top_k=4, max_tokens=LENGTH, seed=1, ignore_eos=True),
    SamplingParams(temperature=0.3, presence_penalty=0.4, max_tokens=LENGTH, seed=2, ignore_eos=True),
    SamplingParams(temperature=0.4, min_p=0.2, repetition_penalty=1.1, max_tokens=LENGTH, seed=3, ignore_eos=True),
    SamplingParams(temperature=0.2, top_p=0.9, max_tokens=LENGTH, seed=4, ignore_eos=True),
]
SHARED = list(range(40, 60))
PROMPTS = [[5, 6, 7], [*SHARED, 8, *SHARED], [*SHARED, 9, 10, 11], [(7 * i) % 9 + 3 for i in range(40)]]


@pytest.fixture(scope="module", params=["opt", "llama"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp(request.param), request.param)


def load(checkpoint: Path | None, drafts: bool, **arguments: object) -> LLM:
    config = {"method": "ngram", "num_speculative_tokens": 6, "prompt_lookup_min": 1} if drafts else None
    files = {} if checkpoint is None else {"model": str(checkpoint), "skip_tokenizer_init": True}
    llm = LLM(device="cpu", dtype="float32", speculative_config=config, **files, **arguments)
    llm._engine._core.scheduler.drafts.worth = None  # whether it pays or not
    return llm


def replies(llm: LLM, params: SamplingParams | list[SamplingParams]) -> list[list[int]]:
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], params, use_tqdm=False)
    return [output.outputs[0].token_ids for output in outputs]


def drafted(llm: LLM) -> tuple[int, int]:
    drafts = llm._engine._core.scheduler.drafts
    return drafts.num_accepted, drafts.num_drafted


@pytest.fixture(scope="module")
def expected(checkpoint: Path) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
    with load(checkpoint, drafts=False, num_blocks=64) as llm:
        yield replies(llm, GREEDY), replies(llm, DRAWN)


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_blocks": 64},
        {"num_blocks": 64, "max_num_batched_tokens": 5, "enable_prefix_caching": False},
        {"num_blocks": 26, "block_size": 4, "preemption_mode": "swap", "swap_space": "1MiB"},
        {"num_blocks": 26, "block_size": 4, "preemption_mode": "recompute", "max_num_batched_tokens": 16},
        {"num_blocks": 64, "batch_invariant": True},
    ],
    ids=["usual", "in pieces", "swap", "recompute", "batch invariant"],
)
def test_replies_are_those_without_drafts(checkpoint, expected, arguments):
    with load(checkpoint, drafts=True, **arguments) as llm:
        assert replies(llm, GREEDY) == expected[0]
        assert replies(llm, DRAWN) == expected[1]
        accepted, all_of_them = drafted(llm)
        assert accepted < all_of_them
        assert accepted > 0 or arguments["num_blocks"] < 64, "in a small cache few run at a time"
        assert (llm.stats().preemptions > 0) == (arguments["num_blocks"] == 26)
        assert llm.stats().blocks_in_use == 0


def test_a_request_decides_for_itself(checkpoint, expected):
    with load(checkpoint, drafts=False, num_blocks=64) as llm:
        wish = {"temperature": 0, "max_tokens": LENGTH, "ignore_eos": True}
        assert replies(llm, SamplingParams(**wish, speculate="off")) == expected[0]
        assert drafted(llm) == (0, 0)
        assert replies(llm, SamplingParams(**wish, speculate="lookup")) == expected[0]
        assert drafted(llm)[1] > 0


def test_the_model_in_the_box_says_the_same_and_stops_where_it_did():
    text = "def add(first, second):\n    return first + second\n\n"
    prompts, said = [text * 3 + "def add(", "The sea. The sea. The sea"], []
    for drafts in (False, True):
        with load(None, drafts, num_blocks=128) as llm:
            stops = SamplingParams(temperature=0, max_tokens=48, stop=["sec", "sea,"])
            outputs = llm.generate(prompts, GREEDY, use_tqdm=False) + llm.generate(prompts, stops, use_tqdm=False)
            said.append([(o.outputs[0].text, o.outputs[0].token_ids, o.outputs[0].finish_reason) for o in outputs])
    assert said[0] == said[1]
    assert drafted(llm)[1] > 0

"""What goes with one process goes with several ranks: drafts, small caches, forms, replies that are the same in any
company, and all at once on four."""

import socket
from pathlib import Path

import pytest
from msgspec.structs import replace

from pagedchat import LLM, SamplingParams, StructuredOutputsParams
from tests.distributed.asking import GREEDY, PROMPTS, ask, make, tokens
from tests.models.families.tiny_families import save_tiny

NUM_BLOCKS = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("olmoe"), "olmoe")


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[list[list[int]]]:
    return _asked(folder, 1)


def _asked(folder: Path, size: int, **arguments: object) -> list[list[list[int]]]:
    with make(folder, size, num_blocks=NUM_BLOCKS, **arguments) as llm:
        return tokens(ask(llm))


def test_four_ranks_say_what_one_says_whoever_has_the_usual_port(
    folder: Path, expected: list[list[list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(taken.getsockname()[1]))
        assert _asked(folder, 4) == expected


@pytest.mark.parametrize("how", ["lookup", "model"])
def test_drafts_change_no_token(how: str, folder: Path, expected: list[list[list[int]]]) -> None:
    drafts = {"model": str(folder)} if how == "model" else {"method": "ngram", "prompt_lookup_min": 1}
    with make(folder, 2, num_blocks=NUM_BLOCKS, speculative_config=drafts) as llm:
        llm._engine._core.scheduler.drafts.worth = None  # whether it pays or not
        assert tokens(ask(llm, replace(GREEDY, logprobs=None))) == expected
        assert llm.stats().draft_tokens > 0
        assert (llm.stats().accepted_tokens > 0) or how == "lookup"
        assert len(llm.info.ranks) == 2
        assert bool(llm.info.draft_model) == (how == "model")


@pytest.mark.parametrize("kind", ["fp8", "int8"])
def test_a_small_cache_is_small_on_each_rank(kind: str, folder: Path) -> None:
    assert _asked(folder, 2, kv_cache_dtype=kind) == _asked(folder, 1, kv_cache_dtype=kind)


def test_replies_are_the_same_in_any_company(folder: Path) -> None:
    with make(folder, 2, num_blocks=NUM_BLOCKS, batch_invariant=True, enable_prefix_caching=False) as llm:
        together = ask(llm)
        for prompt, in_company in zip(PROMPTS, together, strict=True):
            [alone] = llm.generate([{"prompt_token_ids": prompt}], GREEDY, use_tqdm=False)
            assert alone.outputs[0].token_ids == in_company.outputs[0].token_ids
            assert alone.outputs[0].logprobs == in_company.outputs[0].logprobs


def test_a_form_is_kept() -> None:
    params = SamplingParams(max_tokens=20, structured_outputs=StructuredOutputsParams(regex="(yes|no), [0-9]{3}"))
    with LLM(device="cpu", dtype="float32", tensor_parallel_size=2, num_blocks=NUM_BLOCKS) as llm:
        texts = [output.outputs[0].text for output in llm.generate(["a", "the sea"], params, use_tqdm=False)]
    assert all(text[:4] in ("yes,", "no, ") and text[-3:].isdigit() for text in texts)

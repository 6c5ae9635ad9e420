"""What the API takes as prompts and parameters, whoever made them, and what it refuses in words."""

import re
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch

from pagedchat import LLM, LLMEngine, SamplingParams
from pagedchat.config import EngineConfig
from pagedchat.errors import InvalidValueError, PagedChatError, RequestError
from tests.api.fakes_llm import VOCAB_SIZE, use_fake_model

PARAMS = SamplingParams(temperature=0, max_tokens=2)
IDS = [5, 6, 7]


@pytest.fixture
def llm(monkeypatch: pytest.MonkeyPatch) -> LLM:
    use_fake_model(monkeypatch)
    return LLM()


def ids_of(llm: LLM, prompts: Any, params: Any = PARAMS) -> list[list[int]]:
    return [output.prompt_token_ids for output in llm.generate(prompts, params)]


@pytest.mark.parametrize(
    "token_ids",
    [
        IDS,
        (5, 6, 7),
        range(5, 8),
        [np.int64(5), np.int32(6), np.uint8(7)],
        np.array(IDS),
        np.array(IDS, dtype=np.uint16),
        torch.tensor(IDS),
        [torch.tensor(5), 6, 7],
    ],
    ids=lambda token_ids: type(token_ids).__name__,
)
def test_token_ids_of_any_make(llm: LLM, token_ids: Any) -> None:
    [ids] = ids_of(llm, {"prompt_token_ids": token_ids})
    assert ids == IDS
    assert {type(token_id) for token_id in ids} == {int}


def test_token_ids_are_copied(llm: LLM) -> None:
    mine = list(IDS)
    [output] = llm.generate({"prompt_token_ids": mine}, PARAMS)
    mine.clear()
    assert output.prompt_token_ids == IDS


@pytest.mark.parametrize(
    "make",
    [list, tuple, iter, np.array, lambda texts: dict.fromkeys(texts).keys(), lambda texts: (t for t in texts)],
)
def test_prompts_come_in_anything_that_has_several(llm: LLM, make: Callable[[list[str]], Any]) -> None:
    texts = ["ab", "cd", "e"]
    assert [output.prompt for output in llm.generate(make(texts), PARAMS)] == texts


NO_PROMPTS: list[Any] = [
    None, 5, 1.5, b"ab", bytearray(b"a"), np.array(3), torch.tensor(3), object(),
    [None], [5], [b"ab"], [["a"]], [[1, 2]], ["a", 1.5], [{}], [{"text": "a"}], [{"prompt": None}], [{"prompt": 5}],
    [{1: 2}], np.array([1, 2]), torch.tensor([1]), True, [MappingProxyType({"prompt": "a"})],
]  # fmt: skip
NO_IDS: list[Any] = [
    None, 5, "ab", b"ab", 1.5, [1.5], [None], ["1"], [True], [[1, 2]], np.array([1.0]), np.array([[1, 2]]),
    np.array(1), torch.tensor([1.0]), torch.tensor(1), {1: 2}, iter([1]), [1, None], [1, 2.0],
]  # fmt: skip
OUTSIDE: list[Any] = [[-1], [VOCAB_SIZE], [1, 2**31], [2**63], [10**30], np.array([-1]), [np.int64(2**40)]]
EMPTY: list[Any] = [[], (), np.array([], dtype=np.int64), torch.tensor([], dtype=torch.int64), set()]


def named(value: object) -> str:
    """The same in every process: without addresses."""
    return re.sub(" at 0x[0-9a-f]+", "", repr(value))[:40]


@pytest.mark.parametrize("prompts", NO_PROMPTS, ids=named)
def test_what_is_no_prompt_is_refused(llm: LLM, prompts: Any) -> None:
    with pytest.raises(InvalidValueError) as caught:
        llm.generate(prompts, PARAMS)
    assert caught.value.hint == 'Give a string, {"prompt": text} or {"prompt_token_ids": ids}, or a list of these.'
    assert len(caught.value.message) < 120


@pytest.mark.parametrize("token_ids", NO_IDS, ids=named)
def test_what_is_no_list_of_token_ids_is_refused(llm: LLM, token_ids: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"prompt_token_ids is .* It must be a list of token ids"):
        llm.generate({"prompt_token_ids": token_ids}, PARAMS)


@pytest.mark.parametrize(
    ("several", "words"), [(OUTSIDE, "is outside the model's vocabulary"), (EMPTY, "has no tokens")]
)
def test_token_ids_that_the_model_cannot_answer(llm: LLM, several: list[Any], words: str) -> None:
    for token_ids in several:
        with pytest.raises(RequestError, match=words):
            llm.generate({"prompt_token_ids": token_ids}, PARAMS)


def test_stop_token_that_the_model_does_not_have_is_refused(llm: LLM) -> None:
    with pytest.raises(RequestError, match=f"Stop token id {VOCAB_SIZE} is outside"):
        llm.generate("a", SamplingParams(stop_token_ids=[1, VOCAB_SIZE]))


@pytest.mark.parametrize("params", [[None, PARAMS], (PARAMS, None), np.array([None, PARAMS], dtype=object)])
def test_none_among_parameters_means_the_models_own(llm: LLM, params: Any) -> None:
    lengths = {len(output.outputs[0].token_ids) for output in llm.generate(["a", "b"], params)}
    assert lengths == {PARAMS.max_tokens, llm.sampling_defaults.max_tokens}


@pytest.mark.parametrize("params", [5, "x", {"temperature": 0}, object(), [5], [{"temperature": 0}], False])
def test_what_are_no_parameters_is_refused(llm: LLM, params: Any) -> None:
    with pytest.raises(InvalidValueError, match="sampling_params is"):
        llm.generate(["a"], params)
    for ask in (llm.stream, llm.chat, llm.stream_chat):
        prompt: Any = "a" if ask == llm.stream else [{"role": "user", "content": "a"}]
        with pytest.raises(InvalidValueError, match="sampling_params is"):
            list(ask(prompt, params))  # type: ignore[operator]


@pytest.mark.parametrize(
    "messages",
    [None, 5, "hello", [], {}, [None], ["hello"], [{}], [{"role": "user"}], [{"content": "a"}],
     [{"role": 1, "content": "a"}], [{"role": "user", "content": None}],
     [{"role": "user", "content": [{"text": "a"}]}], [{"role": "user", "content": b"a"}],
     {"role": "user", "content": "a"}],
    ids=named,
)  # fmt: skip
def test_what_is_no_conversation_is_refused(llm: LLM, messages: Any) -> None:
    for ask in (llm.chat, llm.stream_chat):
        with pytest.raises(InvalidValueError, match=r"messages? is .* Give a list of messages"):
            ask(messages)


@pytest.mark.parametrize(
    "values", [{"request_id": None}, {"request_id": 5}, {"request_id": ["a"]}, {"params": 5}, {"output_kind": 1}]
)
def test_what_is_no_request_is_refused(monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]) -> None:
    use_fake_model(monkeypatch)
    engine = LLMEngine(EngineConfig())
    with pytest.raises(PagedChatError):
        engine.add_request(**{"request_id": "a", "prompt": "a", "params": PARAMS, **values})
    assert not engine.has_unfinished_requests()

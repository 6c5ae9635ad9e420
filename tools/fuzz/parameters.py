"""Sampling parameters: whatever a caller gives is heeded, or refused by its name, and nothing is held."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from pagedchat.api.engine import LLMEngine
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.errors import InvalidValueError, RequestError
from pagedchat.vllm_keywords import SAMPLING_KEYWORDS
from tests.api.fakes_llm import VOCAB_SIZE, FakeLoadedModel
from tools.fuzz.bent_trees import any_of
from tools.fuzz.target import Target

_NAMES = (*(field.name for field in msgspec.structs.fields(SamplingParams)), *SAMPLING_KEYWORDS)
_SCALARS: list[object] = [
    None, True, False, -1, 0, 1, 3, 20, 21, VOCAB_SIZE - 1, VOCAB_SIZE, 2**31, -(2**63), 10**400,
    0.0, 0.5, -0.0, 101.0, -100.0, float("nan"), float("inf"), "", "a", "ab", "\ud800", "7", b"a",
]  # fmt: skip
_HOSTILE = st.one_of(
    any_of(_SCALARS),
    st.lists(any_of(_SCALARS), max_size=4),
    st.lists(st.lists(any_of(_SCALARS), max_size=3), max_size=3),
    st.dictionaries(st.sampled_from([0, 5, -1, "5", "x", 2.5, VOCAB_SIZE, True]), any_of(_SCALARS), max_size=3),
    any_of([[[]], [3] * 100_000, ["a"] * 300, ["a" * 70_000], {5: 1.0}, range(5), {5}, object()]),
)
_USUAL: dict[str, list[Any]] = {
    "logprobs": [0, 3], "prompt_logprobs": [1], "logit_bias": [{5: 3.0}], "allowed_token_ids": [[5, 6]],
    "bad_words": [["ab", " c"]], "bad_words_ids": [[[5], [6, 7]]], "min_tokens": [2], "max_tokens": [4],
    "truncate_prompt_tokens": [-1, 2], "stop": [["ab"]], "stop_token_ids": [[5]], "temperature": [0, 1.5],
}  # fmt: skip


@st.composite
def _arguments(draw: st.DrawFn) -> dict[str, Any]:
    """Some parameters, hostile ones and usual ones."""
    usual = {name: draw(st.sampled_from(values)) for name, values in _USUAL.items() if draw(st.integers(0, 4)) == 0}
    names = draw(st.lists(st.sampled_from(_NAMES), max_size=2))
    return usual | {name: draw(_HOSTILE) for name in names}


def _check(arguments: dict[str, Any]) -> None:
    engine = LLMEngine.from_loaded(FakeLoadedModel())  # type: ignore[arg-type]  # as far as an engine looks
    try:
        engine.add_request("a", "Hello, you", SamplingParams(**arguments))
    except (InvalidValueError, RequestError) as error:
        named = str(error).replace("Stop token", "stop_token_ids").replace("stop strings", "stop")
        assert any(name in named for name in arguments), error
        assert error.hint
    for _ in range(200):
        if not engine.has_unfinished_requests():
            break
        engine.step()
    assert not engine.has_unfinished_requests()
    assert engine.stats().blocks_in_use == 0
    engine.close()


TARGETS = (Target("parameters", _arguments(), _check),)

"""What a body says of sampling, where the one before it said the same, or nearly."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedchat.engine.sampling_params import RequestOutputKind, SamplingParams
from pagedchat.errors import InvalidValueError
from pagedchat.server.http.errors import ApiError
from pagedchat.server.http.sampling import sampling_params
from pagedchat.server.http.schemas.completions import CompletionBody

SAID = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([0, 0.5, 1]), "seed": st.integers(0, 2), "ignore_eos": st.booleans(),
        "stop": st.sampled_from(["a", ["a", "b"]]), "logit_bias": st.just({"3": 1.5}), "stream": st.booleans(),
    },
)  # fmt: skip


def body(**said: Any) -> CompletionBody:
    return msgspec.convert({"prompt": "a", **said}, CompletionBody)


def alone(said: dict[str, Any], defaults: dict[str, Any], own: dict[str, Any]) -> SamplingParams:
    """Behind a body that said something else."""
    sampling_params(body(temperature=0.125), {}, max_tokens=77)
    return sampling_params(body(**said), defaults, **own)


@given(
    st.lists(
        st.tuples(SAID, st.sampled_from([{}, {"top_p": 0.5}]), st.sampled_from([{}, {"max_tokens": 4}])), max_size=6
    )
)
def test_what_was_said_before_makes_no_difference(asked: list[tuple[dict[str, Any], ...]]) -> None:
    wanted = [alone(*each) for each in asked]
    assert [sampling_params(body(**said), defaults, **own) for said, defaults, own in asked] == wanted


def test_who_says_the_same_shares_what_comes_of_it() -> None:
    first = sampling_params(body(temperature=0.5, stop="a", stream=True), {}, max_tokens=4)
    assert sampling_params(body(temperature=0.5, stop="a", stream=True), {}, max_tokens=4) is first
    assert first.output_kind is RequestOutputKind.DELTA
    assert sampling_params(body(temperature=0.5, stop="a"), {}, max_tokens=4) is not first


def test_what_is_refused_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(InvalidValueError, match="temperature is -1"):
            sampling_params(body(temperature=-1), {})
        with pytest.raises(ApiError, match="stream_options are given"):
            sampling_params(body(stream_options={"include_usage": True}), {})
    assert sampling_params(body(), {}).temperature == SamplingParams().temperature

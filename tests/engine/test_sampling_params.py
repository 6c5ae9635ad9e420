import math

import msgspec
import numpy as np
import pytest
import torch

from pagedchat.engine.sampling_params import SamplingOverrides, SamplingParams
from pagedchat.errors import InvalidValueError

TOP_K = "from -1 to 2147483647, 0 or -1 for all tokens"
SEED = "from -9223372036854775808 to 18446744073709551615"
MAY_BE_NONE = {"logprobs", "stop", "stop_token_ids", "seed", "max_tokens", "speculate"}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"temperature": -1.0}, "temperature is -1.0. It must be a number from 0 to 1000."),
        ({"temperature": math.nan}, "temperature is nan. It must be a number from 0 to 1000."),
        ({"temperature": math.inf}, "temperature is inf. It must be a number from 0 to 1000."),
        ({"temperature": "hot"}, "temperature is 'hot'. It must be a number from 0 to 1000."),
        ({"temperature": True}, "temperature is True. It must be a number from 0 to 1000."),
        ({"top_p": 0.0}, "top_p is 0.0. It must be a number above 0, up to 1."),
        ({"top_k": -2}, f"top_k is -2. It must be a whole number {TOP_K}."),
        ({"top_k": 3_000_000_000}, f"top_k is 3000000000. It must be a whole number {TOP_K}."),
        ({"top_k": 5.0}, f"top_k is 5.0. It must be a whole number {TOP_K}."),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0. It must be a number from 0.01 to 100."),
        ({"repetition_penalty": 1e39}, "repetition_penalty is 1e+39. It must be a number from 0.01 to 100."),
        (
            {"repetition_penalty": 10**400},
            f"repetition_penalty is 1{56 * '0'}.... It must be a number from 0.01 to 100.",
        ),
        ({"min_p": 1.5}, "min_p is 1.5. It must be a number from 0 to 1."),
        ({"presence_penalty": 2.5}, "presence_penalty is 2.5. It must be a number from -2 to 2."),
        ({"frequency_penalty": -3.0}, "frequency_penalty is -3.0. It must be a number from -2 to 2."),
        ({"max_tokens": 0}, "max_tokens is 0. It must be a whole number from 1 to 2147483647."),
        ({"max_tokens": 10**12}, "max_tokens is 1000000000000. It must be a whole number from 1 to 2147483647."),
        ({"seed": 10**23 - 1}, f"seed is {10**23 - 1}. It must be a whole number {SEED}."),
        ({"seed": -(2**63) - 1}, f"seed is {-(2**63) - 1}. It must be a whole number {SEED}."),
        (
            {"seed": 10**5000},
            f"seed is a value of type int that is too large to show. It must be a whole number {SEED}.",
        ),
        ({"stop": [""]}, "stop is ['']. It must be strings that are not empty, in valid Unicode."),
        ({"stop": 5}, "stop is 5. It must be strings that are not empty, in valid Unicode."),
        ({"stop": ["a", None]}, "stop is ['a', None]. It must be strings that are not empty, in valid Unicode."),
        ({"stop": "\ud800"}, "stop is '\\ud800'. It must be strings that are not empty, in valid Unicode."),
        ({"stop_token_ids": 2}, "stop_token_ids is 2. It must be whole numbers from 0 to 2147483647."),
        ({"stop_token_ids": [-1]}, "stop_token_ids is [-1]. It must be whole numbers from 0 to 2147483647."),
        (
            {"stop_token_ids": [2**31]},
            "stop_token_ids is [2147483648]. It must be whole numbers from 0 to 2147483647.",
        ),
        ({"stop_token_ids": [[2]]}, "stop_token_ids is [[2]]. It must be whole numbers from 0 to 2147483647."),
        ({"stop_token_ids": [1.0]}, "stop_token_ids is [1.0]. It must be whole numbers from 0 to 2147483647."),
        ({"stop_token_ids": "12"}, "stop_token_ids is '12'. It must be whole numbers from 0 to 2147483647."),
        ({"ignore_eos": 1}, "ignore_eos is 1. It must be true or false."),
    ],
)
def test_values_outside_their_range_are_refused_in_words(values, sentence):
    with pytest.raises(InvalidValueError) as caught:
        SamplingParams(**values)
    assert str(caught.value) == sentence
    with pytest.raises(InvalidValueError) as caught:
        SamplingOverrides(**values)
    narrower = sentence.replace("from 0 to 1000.", "from 0 to 2.").replace("from 0.01 to 100.", "from 0.1 to 2.")
    assert str(caught.value) == narrower, "what people set has closer bounds than what programs do"


@pytest.mark.parametrize("name", [name for name in SamplingOverrides.__struct_fields__ if name not in MAY_BE_NONE])
def test_none_is_no_value_of_a_request_and_every_value_of_an_override(name):
    with pytest.raises(InvalidValueError, match=f"{name} is None"):
        SamplingParams(**{name: None})
    assert SamplingOverrides(**{name: None}) == SamplingOverrides()


def test_kind_of_output_is_one_of_the_three():
    with pytest.raises(InvalidValueError, match="output_kind is 1"):
        SamplingParams(output_kind=1)


def test_none_means_no_stops_as_users_of_vllm_write_it():
    params = SamplingParams(stop=None, stop_token_ids=None, seed=None, max_tokens=None)
    assert (params.stop, params.stop_token_ids, params.seed, params.max_tokens) == ([], [], None, None)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"temperature": np.float32(0.5), "top_p": np.float64(0.5)}, {"temperature": 0.5, "top_p": 0.5}),
        ({"top_k": np.int64(7), "max_tokens": np.int32(3)}, {"top_k": 7, "max_tokens": 3}),
        ({"seed": np.uint64(2**64 - 1)}, {"seed": 2**64 - 1}),
        ({"seed": torch.tensor(5)}, {"seed": 5}),
        ({"stop_token_ids": np.array([1, 2])}, {"stop_token_ids": [1, 2]}),
        ({"stop_token_ids": (np.int64(1), 2)}, {"stop_token_ids": [1, 2]}),
        ({"stop_token_ids": torch.tensor([4])}, {"stop_token_ids": [4]}),
        ({"stop_token_ids": {3}}, {"stop_token_ids": [3]}),
        ({"stop": ("a", "b")}, {"stop": ["a", "b"]}),
        ({"stop": np.array(["a"])}, {"stop": ["a"]}),
        ({"temperature": 1}, {"temperature": 1.0}),
    ],
)
def test_values_of_other_libraries_become_pythons_own(values, expected):
    params, overrides = SamplingParams(**values), SamplingOverrides(**values)
    assert params == SamplingParams(**expected)
    assert [type(getattr(params, name)) for name in values] == [type(value) for value in expected.values()]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(overrides), type=SamplingOverrides) == overrides


def test_whatever_is_allowed_can_go_over_the_wire():
    overrides = SamplingOverrides(seed=2**64 - 1, top_k=2**31 - 1, max_tokens=2**31 - 1, stop_token_ids=[2**31 - 1])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(overrides), type=SamplingOverrides) == overrides
    lowest = SamplingOverrides(seed=-(2**63), temperature=5e-324)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(lowest), type=SamplingOverrides) == lowest


@pytest.mark.parametrize(
    ("stop", "sentence"),
    [
        (["x"] * 65, "There are 65 stop strings. One request may have at most 64."),
        (["x" * 65_537], "There are 65,537 characters of stop strings. One request may have at most 65,536."),
        (["x" * 40_000, "y" * 40_000], "There are 80,000 characters of stop strings."),
    ],
)
def test_stop_strings_have_bounds(stop, sentence):
    with pytest.raises(InvalidValueError, match=sentence):
        SamplingOverrides(stop=stop).resolve(SamplingParams())


def test_as_many_and_as_long_stop_strings_as_may_be():
    assert len(SamplingParams(stop=["x" * 1024] * 64).stop) == 64


def test_one_stop_string_may_stand_alone():
    assert SamplingParams(stop="END").stop == ["END"]


def test_overrides_change_only_what_is_set():
    defaults = SamplingParams(temperature=0.7, top_p=0.9)
    assert SamplingOverrides().resolve(defaults) == defaults
    resolved = SamplingOverrides(temperature=0.0, max_tokens=5).resolve(defaults)
    assert resolved == SamplingParams(temperature=0.0, top_p=0.9, max_tokens=5)
    assert resolved.greedy
    assert not defaults.greedy


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": 0.0}, {"top_p": 1.0}, {"top_k": 0}, {"top_k": -1}, {"min_p": 0.0}, {"min_p": 1.0},
        {"presence_penalty": -2.0}, {"presence_penalty": 2.0}, {"frequency_penalty": -2.0},
        {"frequency_penalty": 2.0}, {"max_tokens": 1}, {"max_tokens": None},
        {"stop": ["x"] * 64}, {"stop": ["x" * 65_536]},
    ],
)  # fmt: skip
def test_the_ends_of_a_range_are_in_it(values):
    params = SamplingParams(**values)
    assert {name: getattr(params, name) for name in values} == values


def test_a_share_above_one_is_refused():
    with pytest.raises(InvalidValueError, match="top_p"):
        SamplingParams(top_p=1.5)


def test_any_of_three_penalties_makes_tokens_less_likely():
    assert not SamplingParams().penalises
    for value in (0.5, 1.0, 2.0):
        assert SamplingParams(repetition_penalty=value).penalises == (value != 1.0)
        assert SamplingParams(presence_penalty=value).penalises
        assert SamplingParams(frequency_penalty=value).penalises
    assert SamplingParams(repetition_penalty=2.0, presence_penalty=1.0).penalises


def test_a_value_set_later_is_checked_as_it_is_at_first() -> None:
    params = SamplingParams(temperature=0.5)
    params.max_tokens, params.stop = 5, "end"
    assert params == SamplingParams(temperature=0.5, max_tokens=5, stop=["end"])
    with pytest.raises(InvalidValueError, match="top_p is 2"):
        params.top_p = 2
    with pytest.raises(InvalidValueError, match="min_tokens is 6"):
        params.min_tokens = 6
    with pytest.raises(AttributeError, match="SamplingParams has no max_token"):
        params.max_token = 5
    assert params == SamplingParams(temperature=0.5, max_tokens=5, stop=["end"])

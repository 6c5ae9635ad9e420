import pytest

from pagedchat.engine.sampling_params import SamplingOverrides, SamplingParams
from pagedchat.errors import InvalidValueError


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"temperature": -1.0}, "temperature is -1.0. It must be at least 0."),
        ({"top_p": 0.0}, "top_p is 0.0. It must be above 0 and at most 1."),
        ({"top_k": -2}, "top_k is -2. It must be at least 1, or 0 for all tokens."),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0. It must be above 0."),
        ({"min_p": 1.5}, "min_p is 1.5. It must be at least 0 and at most 1."),
        ({"presence_penalty": 2.5}, "presence_penalty is 2.5. It must be at least -2 and at most 2."),
        ({"frequency_penalty": -3.0}, "frequency_penalty is -3.0. It must be at least -2 and at most 2."),
        ({"max_tokens": 0}, "max_tokens is 0. It must be at least 1."),
        ({"stop": [""]}, "stop is ['']. It must be strings that are not empty."),
    ],
)
def test_values_outside_their_range_are_refused_in_words(values, sentence):
    with pytest.raises(InvalidValueError) as caught:
        SamplingParams(**values)
    assert str(caught.value) == sentence
    with pytest.raises(ValueError, match=next(iter(values))):
        SamplingOverrides(**values).resolve(SamplingParams())


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

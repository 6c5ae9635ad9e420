"""`speculative_config`: vLLM's words, and a sentence for every other."""

import pytest

from pagedchat.api.speculation import speculation_of
from pagedchat.config import SpeculationConfig
from pagedchat.errors import InvalidValueError


def test_vllms_words_are_ours():
    given = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 3, "prompt_lookup_min": 2}
    wanted = SpeculationConfig(method="lookup", num_speculative_tokens=5, prompt_lookup_max=3, prompt_lookup_min=2)
    assert speculation_of(given) == wanted
    assert speculation_of(None) == SpeculationConfig(method="off")
    assert speculation_of({"method": "ngram", "prompt_lookup_max": 1}).prompt_lookup_min == 1


def test_a_draft_model_is_named():
    wanted = SpeculationConfig(method="model", model="small", num_speculative_tokens=5)
    assert speculation_of({"model": "small", "num_speculative_tokens": 5}) == wanted
    assert speculation_of({"method": "draft_model", "model": "small", "num_speculative_tokens": 5}) == wanted


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("ngram", "speculative_config is 'ngram'"),
        ({"method": "eagle"}, "the method 'eagle'"),
        ({"num_speculative_tokens": 3}, "the method None"),
        ({"method": "draft_model"}, "the method 'draft_model' and the model None"),
        ({"method": "ngram", "model": "small"}, "the method 'ngram' and the model 'small'"),
        ({"model": ""}, "--speculate is ''"),
        ({"model": 7}, "--speculate is 7"),
        ({"method": "ngram", "speed": 3}, "speculative_config has 'speed'"),
        ({"method": "ngram", "num_speculative_tokens": 0}, "num_speculative_tokens is 0"),
        ({"method": "ngram", "num_speculative_tokens": "5"}, "num_speculative_tokens is '5'"),
        ({"method": "ngram", "prompt_lookup_min": 5}, "prompt_lookup_min is 5, prompt_lookup_max 4"),
    ],
)
def test_what_cannot_be_is_named(given, words):
    with pytest.raises(InvalidValueError, match=words):
        speculation_of(given)

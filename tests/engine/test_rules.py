"""What a request may say of single tokens and texts: what is taken, and the sentence for what is not."""

from collections.abc import Callable
from typing import Any

import pytest

from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.tokens.rules import (
    MAX_BAD_WORDS,
    MAX_STOP_CHARACTERS,
    check_biases,
    check_tokens,
    check_truncation,
    check_word_ids,
    check_words,
)
from pagedchat.errors import InvalidValueError, RequestError
from pagedchat.structured.params import StructuredOutputsParams
from tests.engine.test_core import ask, finish, make_engine, tokens


@pytest.mark.parametrize(
    ("taken", "is_taken_as"),
    [
        (check_words("bad_words", ["a", "bc"]), ["a", "bc"]),
        (check_word_ids("bad_words_ids", ([1, 2], (3,))), [[1, 2], [3]]),
        (check_tokens("allowed_token_ids", (5, 6)), [5, 6]),
        (check_biases("logit_bias", {"7": 1, 8: -2.5}), {7: 1.0, 8: -2.5}),
        (check_truncation("truncate_prompt_tokens", -1), -1),
        (check_truncation("truncate_prompt_tokens", 9), 9),
    ],
)
def test_what_is_right_is_taken_in_types_of_our_own(taken: object, is_taken_as: object) -> None:
    assert taken == is_taken_as


@pytest.mark.parametrize(
    ("check", "value", "sentence"),
    [
        (check_words, ["a"] * (MAX_BAD_WORDS + 1), "There are 257 texts in bad_words"),
        (check_words, ["a" * (MAX_STOP_CHARACTERS + 1)], "There are 65,537 characters in bad_words"),
        (check_word_ids, 5, "lists of token ids"),
        (check_word_ids, [[1]] * (2 * MAX_BAD_WORDS + 1), "There are 513 lists in bad_words_ids"),
        (check_word_ids, [[]], "at least one token id"),
        (check_tokens, [], "at least one token id"),
        (check_biases, [5], "a dict of token ids and numbers"),
        (check_biases, {"x": 1.0}, "A token id of asked"),
        (check_biases, {5: 101.0}, "asked of token 5"),
        (check_truncation, 0, "as many as there is room for"),
        (check_truncation, -2, "but 0"),
    ],
)
def test_what_is_wrong_is_refused_with_what_is_wrong(
    check: Callable[[str, Any], object], value: object, sentence: str
) -> None:
    with pytest.raises(InvalidValueError, match=sentence):
        check("asked", value)


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        (SamplingParams(logprobs=6), "logprobs is 6, but the model has 5 tokens"),
        (SamplingParams(prompt_logprobs=7), "prompt_logprobs is 7, but"),
        (SamplingParams(stop_token_ids=[5]), "Stop token id 5 is outside the model's vocabulary of 5"),
        (SamplingParams(logit_bias={9: 1.0}), "logit_bias: token id 9 is outside"),
        (SamplingParams(allowed_token_ids=[1, 2], bad_words_ids=[[1], [2]]), "allowed_token_ids leaves no token"),
        (
            SamplingParams(allowed_token_ids=[1, 2], bad_words_ids=[[1]], min_tokens=1, stop_token_ids=[2]),
            "allowed_token_ids leaves no token",
        ),
        (SamplingParams(speculate="model"), "there is no draft model"),
        (
            SamplingParams(structured_outputs=StructuredOutputsParams(regex="a+")),
            "structured_outputs cannot be had of this model",
        ),
    ],
)
def test_what_this_model_cannot_do_is_refused_and_the_chat_goes_on(params: SamplingParams, sentence: str) -> None:
    engine = make_engine(vocab_size=5)
    chat = engine.open()
    with pytest.raises(RequestError, match=sentence):
        engine.extend(chat, [1, 2, 3], params)
    engine.check_integrity()
    ask(engine, [1, 2, 3], seq_id=chat)
    finish(engine)
    assert len(engine.sequences[chat]) == 4


def test_what_is_told_of_a_prompt_cannot_be_told_of_one_that_is_computed() -> None:
    engine = make_engine()
    chat = ask(engine, tokens(6))
    finish(engine)
    with pytest.raises(RequestError, match="which is computed in part"):
        engine.extend(chat, tokens(2), SamplingParams(prompt_logprobs=0))

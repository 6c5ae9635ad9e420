"""Forms of replies as they are asked for: exactly one, within bounds, named where they are not."""

import pytest

from pagedchat.errors import InvalidValueError
from pagedchat.structured.params import MAX_CHARACTERS, MAX_CHOICES, MAX_GRAMMAR, StructuredOutputsParams
from pagedchat.vllm_keywords import FORM_KEYWORDS


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "asks for nothing"),
        ({"regex": "a", "choice": ["b"]}, "regex and choice"),
        ({"regex": "a", "json_object": True}, "regex and json_object"),
        ({"json": "{"}, "structured_outputs.json"),
        ({"json": True}, "structured_outputs.json"),
        ({"json": [1]}, "structured_outputs.json"),
        ({"json": {"minimum": float("nan")}}, "structured_outputs.json"),
        ({"json": {"a": object()}}, "structured_outputs.json"),
        ({"regex": ""}, "structured_outputs.regex"),
        ({"regex": 5}, "structured_outputs.regex"),
        ({"choice": []}, "structured_outputs.choice"),
        ({"choice": ["a", ""]}, "structured_outputs.choice"),
        ({"choice": [str(i) for i in range(MAX_CHOICES + 1)]}, "4,097"),
        ({"regex": "x" * (MAX_CHARACTERS + 1)}, "1,048,577"),
        ({"grammar": "x" * (MAX_GRAMMAR + 1)}, "65,537"),
        ({"grammar": ""}, "structured_outputs.grammar"),
        ({"grammar": 5}, "structured_outputs.grammar"),
        ({"json_object": 1}, "structured_outputs.json_object"),
    ],
)
def test_what_is_no_form_is_named(values: dict, words: str) -> None:
    with pytest.raises(InvalidValueError, match="structured_outputs") as refused:
        StructuredOutputsParams(**values)
    assert words in str(refused.value)


def test_a_schema_is_the_same_as_text_and_as_python_has_it() -> None:
    as_text, as_python = (
        StructuredOutputsParams(json='{"type":"null"}'),
        StructuredOutputsParams(json={"type": "null"}),
    )
    assert as_text.form == as_python.form


@pytest.mark.parametrize("name", FORM_KEYWORDS)
def test_keywords_of_vllms_without_a_meaning_say_so(name: str) -> None:
    why, neutral = FORM_KEYWORDS[name]
    for value in neutral:
        assert StructuredOutputsParams(regex="a", **{name: value}) == StructuredOutputsParams(regex="a")
    with pytest.raises(InvalidValueError, match=f"^{name} is 'something else'") as refused:
        StructuredOutputsParams(regex="a", **{name: "something else"})
    assert why in str(refused.value)
    with pytest.raises(TypeError, match="nonsense"):
        StructuredOutputsParams(regex="a", nonsense=1)

"""Forms that replies are to have: refused in a sentence that names them, or something satisfies them."""

import json
from functools import cache
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tokenizers import Tokenizer

from pagedchat import bundled
from pagedchat.engine.sequence import Sequence
from pagedchat.errors import InvalidValueError, RequestError
from pagedchat.runtime.structured.grammar import fill_masks, num_words
from pagedchat.runtime.structured.grammars import Grammars
from pagedchat.structured.params import StructuredOutputsParams
from tools.fuzz.bent_trees import any_of, bent
from tools.fuzz.target import Target

_VOCAB_SIZE, _EOS = 8192, 2
_SCHEMA = {
    "$defs": {"part": {"type": "array", "items": {"$ref": "#/$defs/part"}, "maxItems": 2}},
    "type": "object",
    "properties": {
        "a": {"type": "string", "pattern": "^[a-c]+$", "maxLength": 4},
        "b": {"anyOf": [{"type": "integer", "minimum": 3}, {"enum": ["x", None]}, {"const": 1.5}]},
        "c": {"$ref": "#/$defs/part"},
    },
    "required": ["a", "b"],
    "additionalProperties": False,
}
_VALUES: st.SearchStrategy[Any] = any_of(
    [0, -1, 1e300, 2**63, "", "#/$defs/part", "object", "^(", True, None, [], {}]
)
_PIECES = [
    "a",
    "(",
    ")",
    "[",
    "]",
    "{2,3}",
    "{900}",
    "+",
    "*",
    "?",
    "|",
    "\\d",
    "\\",
    "^",
    "$",
    ".",
    "(?=b)",
    "é",
    "\n",
]
_RULES = [
    "start: ", "a: ", "B: ", "start", "a", "B", '"x"', "/y+/", "/[a-z]+/", "/y*/", "/y+x/", " | ", "(", ")",
    "?", "*", "{2,5}", "\n", "%json {}", "%ignore /y+/", '\n%llguidance {"no_forcing": false}\n', "::= ",
    "root ::= ", "//",
]  # fmt: skip
_STEPS = 20


@cache
def _grammars() -> Grammars:
    tokenizer = Tokenizer.from_file(str(bundled.folder() / "tokenizer.json"))
    return Grammars(tokenizer, _VOCAB_SIZE, [_EOS])


def _check(asked: tuple[str, Any]) -> None:
    name, given = asked
    wanted: dict[str, Any] = {name: given}
    try:
        grammar = _grammars().compile(StructuredOutputsParams(**wanted))
    except InvalidValueError as error:
        assert f"structured_outputs.{name}" in error.message
        assert "\n" not in error.message
        return
    mask, sequence = np.zeros((1, num_words(_VOCAB_SIZE)), np.int32), Sequence(1)
    for _ in range(_STEPS):
        try:
            fill_masks(mask, [(grammar, sequence)])
        except RequestError as error:  # too much for the library, in the midst of a reply
            assert "\n" not in error.message
            break
        allowed = np.nonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))[0]
        if not len(allowed) and sequence.token_ids:
            break
        sequence.token_ids.append(int(allowed[len(sequence.token_ids) % len(allowed)]))
        if sequence.token_ids[-1] == _EOS:
            break


def _of(name: str, given: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, Any]]:
    return st.tuples(st.just(name), given)


TARGETS = (
    Target(
        "forms",
        _of("json", bent(_SCHEMA, _VALUES).map(json.dumps) | st.text(max_size=20))
        | _of("regex", st.lists(st.sampled_from(_PIECES), max_size=12).map("".join))
        | _of("grammar", st.lists(st.sampled_from(_RULES), max_size=16).map("".join))
        | _of("choice", st.lists(st.sampled_from(_PIECES), max_size=6)),
        _check,
    ),
)

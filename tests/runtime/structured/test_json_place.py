"""Where a JSON text's next mask is the one before: held against masks that are made of all tokens."""

import json
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from pagedchat import bundled
from pagedchat.engine.sequence import Sequence
from pagedchat.runtime.structured.free_texts import Bounds, SchemaPaths
from pagedchat.runtime.structured.grammar import Grammar, fill_masks, num_words
from pagedchat.runtime.structured.grammars import Grammars
from pagedchat.runtime.structured.json_place import JsonPlace
from pagedchat.runtime.structured.token_texts import TokenTexts
from pagedchat.structured.params import StructuredOutputsParams as Form

pytest.importorskip("llguidance")
VOCAB_SIZE, EOS = 8192, 2
TEXT = {"type": "string"}
SCHEMAS: dict[str, dict[str, Any]] = {
    "a list": {"type": "array", "items": TEXT, "minItems": 3},
    "an object": {
        "type": "object",
        "properties": {
            "name": TEXT,
            "kind": {"enum": ["one", "other"]},
            "count": {"type": "integer"},
            "note": TEXT,
        },
        "required": ["name", "kind", "count", "note"],
        "additionalProperties": False,
    },
    "references": {
        "$defs": {"Part": {"type": "object", "properties": {"title": {"anyOf": [TEXT, {"type": "null"}]}}}},
        "type": "object",
        "properties": {"parts": {"type": "array", "items": {"$ref": "#/$defs/Part"}, "minItems": 2}},
        "required": ["parts"],
    },
    "at least": {"type": "array", "items": TEXT | {"minLength": 100}, "minItems": 3},
    "at most": {"type": "array", "items": TEXT | {"minLength": 3, "maxLength": 100}, "minItems": 3},
    "anything": {"type": "array", "items": {}, "minItems": 9},
}


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    tokenizer = Tokenizer.from_file(str(bundled.folder() / "tokenizer.json"))
    return Grammars(tokenizer, VOCAB_SIZE, [EOS])


@cache
def kinds(texts: TokenTexts) -> list[tuple[bool, bool, bool, bool, bool]]:
    """What each token does to a text, so that rare ones may come as often as others; first: if it begins one."""
    said = [texts.of(token) or b"" for token in range(VOCAB_SIZE)]
    return [
        (each[:1] == b'"', b'"' in each, b"\\" in each, max(each, default=0) > 127, len(each) > 9) for each in said
    ]


def any_of(draw: random.Random, texts: TokenTexts, tokens: list[int]) -> int:
    """First a kind, then a token of it."""
    of = kinds(texts)
    kind = draw.choice(sorted({of[token] for token in tokens}))
    return draw.choice([token for token in tokens if of[token] == kind])


def mask_of(grammar: Grammar, sequence: Sequence) -> np.ndarray:
    """By a matcher that has read every token."""
    row = np.zeros((1, num_words(VOCAB_SIZE)), np.int32)
    fill_masks(row, [(Grammar(grammar._matcher, VOCAB_SIZE), sequence)])
    return row[0]


def walk(
    grammar: Grammar, seed: int, num_tokens: int = 80
) -> Iterator[tuple[JsonPlace, Sequence, int, np.ndarray]]:
    """A reply that mostly goes on with bare characters where it may: before each token the place, the reply, the
    token, and its mask."""
    assert grammar._places is not None
    place, sequence, draw = grammar._places.begin(), Sequence(1), random.Random(seed)
    for _ in range(num_tokens):
        mask = mask_of(grammar, sequence)
        allowed = np.nonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")[:VOCAB_SIZE])[0].tolist()
        others = [token for token in allowed if not place.plain[token] and token != EOS]
        plain = [token for token in allowed if place.plain[token]]
        begin = [token for token in others if kinds(place._texts)[token][0]]
        if place.room < 0 and begin:
            others = begin
        keeps_on = plain and (not others or draw.random() < (0.8 if place.room >= 0 else 0.3))
        token = any_of(draw, place._texts, plain if keeps_on else others or [EOS])
        if token == EOS:
            return
        yield place, sequence, token, mask
        sequence.token_ids.append(token)


@pytest.mark.parametrize("name", SCHEMAS)
def test_where_it_says_so_the_mask_stays(grammars: Grammars, name: str) -> None:
    grammar, passed = grammars.compile(Form(json=SCHEMAS[name])), 0
    for seed in range(4):
        unread: list[int] = []
        before = None
        for place, _, token, mask in walk(grammar, seed):
            if before is not None:
                assert (mask == before).all()
            if place.passes(token):
                unread, before = [*unread, token], mask
                passed += 1
                continue
            assert all(place.is_free is not place.read(each) for each in unread)
            place.read(token)
            unread, before = [], None
    assert passed > 20


def test_what_is_plain_stands_for_itself(grammars: Grammars) -> None:
    """Whatever the model, and wherever in a text it is."""
    texts = grammars._texts_of(grammars._vocabulary_of_model())
    free = Sequence(1)
    free.token_ids = grammars._tokenizer.encode('["a').ids[1:]
    mask = mask_of(grammars.compile(Form(json=SCHEMAS["a list"])), free)
    allowed = np.unpackbits(mask.view(np.uint8), bitorder="little")[:VOCAB_SIZE]
    num_plain = 0
    for token in range(VOCAB_SIZE):
        said = texts.of(token)
        if texts.plain[token]:
            num_plain += 1
            assert said is not None
            assert allowed[token]
            assert len(said.decode()) == texts.plain[token]
            assert json.loads(b'"%s"' % said) == said.decode()
    assert num_plain > VOCAB_SIZE // 2
    assert texts.most_bytes == max(len(texts.of(token) or b"") for token in range(VOCAB_SIZE))


def test_a_key_is_no_text(grammars: Grammars) -> None:
    grammar = grammars.compile(Form(json={"type": "object", "additionalProperties": TEXT}))
    assert grammar._places is not None
    place, said = grammar._places.begin(), b""
    for token in grammars._tokenizer.encode('{"a key": "a text", "another": ["').ids[1:]:
        said += place._texts.of(token) or b""
        place.read(token)
        is_value = said.count(b'"') == 3
        assert place.is_free is is_value, said


@pytest.mark.parametrize("name", ["a list", "an object", "references", "anything"])
def test_what_makes_no_difference_need_not_be_read(grammars: Grammars, name: str) -> None:
    grammar, num_left_out = grammars.compile(Form(json=SCHEMAS[name])), 0
    for seed in range(4):
        matcher, row = grammar._matcher.deep_copy(), np.zeros(num_words(VOCAB_SIZE), np.int32)
        for place, _, token, mask in walk(grammar, seed):
            matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
            assert (row == mask).all()
            if place.read(token):
                assert matcher.consume_token(token)
            else:
                num_left_out += 1
    assert num_left_out > 20


@pytest.mark.parametrize(
    "item",
    [
        {"type": "string", "pattern": "^[a-z ]+$"},
        {"type": "string", "format": "date"},
        {"enum": ["a long text that many tokens begin", "another one of these long texts"]},
        {"anyOf": [{"type": "string", "minLength": 3}, {"const": "no"}]},
    ],
    ids=["pattern", "format", "enum", "several"],
)
def test_of_other_texts_nothing_is_said(grammars: Grammars, item: dict[str, Any]) -> None:
    of_all = {"type": "object", "required": ["a"], "additionalProperties": False}
    grammar = grammars.compile(Form(json=of_all | {"properties": {"a": item, "b": TEXT}}))
    num_open = 0
    for seed in range(4):
        for place, sequence, token, _ in walk(grammar, seed, 40):
            said = b"".join(place._texts.of(each) or b"" for each in sequence.token_ids)
            assert place.room < 0 or b'"b"' in said
            num_open += place.room >= 0
            place.read(token)
    schema = SchemaPaths({"properties": {"a": item}, "type": "object"})
    assert schema.bounds(schema.value(schema.root, "a")) is None


def test_a_token_that_is_no_text_and_bytes_that_are_no_characters_end_all_knowledge(grammars: Grammars) -> None:
    grammar = grammars.compile(Form(json=SCHEMAS["a list"]))
    assert grammar._places is not None
    begin = grammars._tokenizer.encode('["one').ids[1:]
    for last in (EOS, grammars._tokenizer.token_to_id("<0xFF>") or EOS):
        place = grammar._places.begin()
        for token in begin:
            place.read(token)
        assert place.is_free
        place.read(last)
        assert place.is_lost
        assert place.room < 0
        assert not place.passes(begin[-1])


def test_ways_through_a_schema() -> None:
    schema = SchemaPaths(
        {
            "definitions": {"Name": {"type": ["string", "null"], "maxLength": 9}},
            "type": "object",
            "properties": {
                "name": {"$ref": "#/definitions/Name"},
                "round": {"$ref": "#/definitions/Round"},
                "list": {"type": "array", "items": {"type": "string", "description": "any"}},
                "pair": {"type": "array", "prefixItems": [{"type": "string"}]},
                "either": {"anyOf": [{"type": "array"}, {"type": "array", "items": False}]},
            },
            "additionalProperties": {"type": "string", "minLength": 2},
        }
    )
    value = {name: schema.value(schema.root, name) for name in ("name", "round", "list", "pair", "either", "else")}
    assert schema.bounds(value["name"]) == Bounds(0, 9)
    assert schema.bounds(value["else"]) == Bounds(2, None)
    assert schema.bounds(schema.item(value["list"])) == Bounds(0, None)
    assert schema.bounds(value["round"]) is schema.item(value["pair"]) is schema.item(value["either"]) is None
    assert schema.bounds(SchemaPaths(True).root) == Bounds(0, None)
    assert SchemaPaths(False).root is None
    assert schema.any_text()
    assert not SchemaPaths({"type": "array", "items": {"enum": ["a"]}}).any_text()
    assert not SchemaPaths({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}).any_text()

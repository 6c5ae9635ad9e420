"""Two hundred JSON schemas of the kinds that the official test suite of JSON Schema has a file for, as far as a
reply can be held to them; small ones, so that any model comes to an end. By a fixed seed.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

Schema = dict[str, Any]
WORDS = ["name", "size", "kind", "street", "colour", "note", "first", "last", "left", "right"]
PATTERNS = ("^[a-c]{2,4}$", "^(yes|no)$", "^[A-Z][a-z]{0,5}$", r"^\d{3}-\d{2}$", "^x?y{1,3}z{1,2}$")
FORMATS = ("date", "uuid", "ipv4", "ipv6")
"""Times may have any number of digits behind the point, and a small model writes them all."""


def _integer(draw: random.Random) -> Schema:
    low = draw.randrange(-1000, 1000)
    if draw.random() < 0.5:
        return {"type": "integer", "minimum": low, "maximum": low + draw.randrange(500)}
    return {"type": "integer", "exclusiveMinimum": low, "exclusiveMaximum": low + draw.randrange(2, 500)}


def _multiple(draw: random.Random) -> Schema:
    return {"type": "integer", "multipleOf": draw.choice([2, 3, 5, 10]), "minimum": 0, "maximum": 999}


def _number(draw: random.Random) -> Schema:
    low = draw.randrange(-50, 50) / 2
    return {"type": "number", "minimum": low, "maximum": low + draw.choice([1, 2.5, 100]), "multipleOf": 0.25}


def _string(draw: random.Random) -> Schema:
    least = draw.randrange(4)
    return {"type": "string", "minLength": least, "maxLength": least + draw.randrange(9)}


def _pattern(draw: random.Random) -> Schema:
    return {"type": "string", "pattern": draw.choice(PATTERNS)}


def _format(draw: random.Random) -> Schema:
    return {"type": "string", "format": draw.choice(FORMATS)}


def _constant(draw: random.Random) -> Schema:
    return {"const": draw.choice([None, True, 0, -1.5, "a\nb", 'ü"\\', [1, [2]], {"a": {"b": []}}])}


def _enumeration(draw: random.Random) -> Schema:
    return {"enum": draw.sample([None, False, 1, 2.5, "one", "zwei", "три", [], {"k": 1}], draw.randrange(1, 6))}


def _any_type(draw: random.Random) -> Schema:
    return {"type": draw.sample(["null", "boolean"], draw.randrange(1, 3))}


def _array(draw: random.Random) -> Schema:
    least = draw.randrange(3)
    return {"type": "array", "items": _leaf(draw), "minItems": least, "maxItems": least + draw.randrange(3)}


def _tuple(draw: random.Random) -> Schema:
    places = [_leaf(draw) for _ in range(draw.randrange(1, 4))]
    return {"type": "array", "prefixItems": places, "items": False, "minItems": len(places)}


def _object(draw: random.Random) -> Schema:
    names = draw.sample(WORDS, draw.randrange(1, 5))
    properties = {name: (_leaf if draw.random() < 0.7 else _array)(draw) for name in names}
    required = draw.sample(names, draw.randrange(len(names) + 1))
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _nested(draw: random.Random) -> Schema:
    return {"type": "object", "properties": {"inner": _object(draw), "list": _array(draw)},
            "required": ["inner", "list"], "additionalProperties": False}  # fmt: skip


def _alternatives(draw: random.Random) -> Schema:
    return {"anyOf": [_leaf(draw) for _ in range(draw.randrange(2, 5))]}


def _one_of(draw: random.Random) -> Schema:
    return {"oneOf": [_integer(draw), _pattern(draw), {"type": "null"}]}


def _all_of(draw: random.Random) -> Schema:
    low = draw.randrange(100)
    return {"allOf": [{"type": "integer", "minimum": low}, {"maximum": low + 30}]}


def _reference(draw: random.Random) -> Schema:
    return {"$defs": {"part": _leaf(draw)}, "type": "object", "properties": {"a": {"$ref": "#/$defs/part"},
            "b": {"$ref": "#/$defs/part"}}, "required": ["a", "b"], "additionalProperties": False}  # fmt: skip


LEAVES: tuple[Callable[[random.Random], Schema], ...] = (
    _integer, _multiple, _number, _string, _pattern, _format, _constant, _enumeration, _any_type,
)  # fmt: skip
WHOLES: tuple[Callable[[random.Random], Schema], ...] = (
    _array, _tuple, _object, _nested, _alternatives, _one_of, _all_of, _reference,
)  # fmt: skip


def _leaf(draw: random.Random) -> Schema:
    return draw.choice(LEAVES)(draw)


def schemas(count: int = 200, seed: int = 22) -> Iterator[Schema]:
    """So many of them, all kinds in turns."""
    draw, kinds = random.Random(seed), (*LEAVES, *WHOLES)
    for i in range(count):
        yield kinds[i % len(kinds)](draw)

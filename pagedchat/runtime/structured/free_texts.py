"""Which texts of a JSON schema may be any text, found by the way to them. Knows schemas; no replies and no tokens.

A schema is taken to say what it says as far as every keyword on the way is known here; of all else nothing is said.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Literal, NamedTuple

Node = dict[str, Any] | None
"""A schema of some value; None: nothing is known of it. `{}` allows all values."""
Kind = Literal["string", "object", "array"]

_NOTES = frozenset({"title", "description", "default", "examples", "$comment", "$schema", "$defs", "definitions"})
"""Keywords that rule out nothing."""
_KEYWORDS: dict[Kind, frozenset[str]] = {
    "string": _NOTES | {"type", "minLength", "maxLength"},
    "object": _NOTES | {"type", "properties", "required", "additionalProperties"},
    "array": _NOTES | {"type", "items", "minItems", "maxItems"},
}
"""Those that are known of a kind of value; keywords of another kind rule out nothing of this one, but are rare."""
_MOST_STEPS = 8
"""From reference to reference, from choice to choice, or into a value."""
_MOST_PARTS = 1000
"""That are looked at."""


class Bounds(NamedTuple):
    """How many characters a text may have that may be any text but for that."""

    least: int
    most: int | None


class SchemaPaths:
    """Finds schemas of parts of a value.

    Args:
        root: the schema of the whole; True allows all.
    """

    def __init__(self, root: object) -> None:
        self.root: Node = {} if root is True else root if isinstance(root, dict) else None

    def bounds(self, node: Node) -> Bounds | None:
        """Of a text in the place of the value; None where it may not be any text."""
        found = self._narrowed(node, "string")
        if found is None:
            return None
        least, most = found.get("minLength", 0), found.get("maxLength")
        if type(least) is not int or type(most) not in (int, type(None)):
            return None
        return Bounds(least, most)

    def item(self, node: Node) -> Node:
        """Of an element, where the value is an array."""
        found = self._narrowed(node, "array")
        return None if found is None else _node(found.get("items", {}))

    def value(self, node: Node, key: str) -> Node:
        """Of what a key stands before, where the value is an object."""
        found = self._narrowed(node, "object")
        if found is None:
            return None
        properties = found.get("properties", {})
        if not isinstance(properties, dict):
            return None
        return _node(properties[key] if key in properties else found.get("additionalProperties", {}))

    def any_text(self) -> bool:
        """Whether some text that is not too far inside may be any text."""
        parts = islice(self._parts(self.root, _MOST_STEPS), _MOST_PARTS)
        return any(self.bounds(node) is not None for node in parts)

    def _parts(self, node: Node, depth: int) -> Iterator[Node]:
        yield node
        if node is None or depth == 0:
            return
        yield from self._parts(self.item(node), depth - 1)
        properties = (self._narrowed(node, "object") or {}).get("properties", {})
        for key in (properties if isinstance(properties, dict) else {}) or ("any",):
            yield from self._parts(self.value(node, key), depth - 1)

    def _narrowed(self, node: Node, kind: Kind) -> Node:
        """The one schema by which a value goes that is of this kind; None where there are several, or none, or some
        keyword of it is not known."""
        for _ in range(_MOST_STEPS):
            if node is None or not node.keys() - _NOTES:
                return node
            named = node.keys() - _NOTES
            if named == {"$ref"}:
                node = self._referred(node["$ref"])
            elif named == {"anyOf"} and isinstance(node["anyOf"], list):
                may_be = [each for each in node["anyOf"] if _may_be(each, kind) is not False]
                node = _node(may_be[0]) if len(may_be) == 1 else None
            elif _may_be(node, kind) and node.keys() <= _KEYWORDS[kind]:
                return node
            else:
                return None
        return None

    def _referred(self, reference: object) -> Node:
        if not isinstance(reference, str) or self.root is None:
            return None
        start, _, name = reference.rpartition("/")
        if start not in ("#/$defs", "#/definitions") or "~" in name or "%" in name:
            return None
        there = self.root.get(start.removeprefix("#/"))
        return _node(there.get(name)) if isinstance(there, dict) else None


def _node(schema: object) -> Node:
    if schema is True:
        return {}
    return schema if isinstance(schema, dict) else None


def _may_be(schema: object, kind: Kind) -> bool | None:
    """Whether a value may be of this kind, by the type that is named; None where none is."""
    named = schema.get("type") if isinstance(schema, dict) else None
    if isinstance(named, str):
        return named == kind
    return kind in named if isinstance(named, list) else None

"""Values of the program's own types, made from their annotations: new fields and messages come by themselves."""

import types
from collections.abc import Mapping
from contextlib import suppress
from enum import EnumType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import reject
from hypothesis import strategies as st

from pagedchat.errors import InvalidValueError

INTEGERS = st.one_of(
    st.integers(-3, 300), st.sampled_from([-(2**63), 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1]),
    st.integers(-(2**63), 2**64 - 1),
)  # fmt: skip
"""What msgpack can carry."""
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)


_SIMPLE: Mapping[object, st.SearchStrategy[Any]] = {
    int: INTEGERS, float: st.floats(), str: TEXTS, bytes: st.binary(max_size=12), bool: st.booleans(),
    type(None): st.none(),
}  # fmt: skip
_PLAIN = {**_SIMPLE, Any: st.recursive(st.one_of(*_SIMPLE.values()), _nested, max_leaves=5)}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type, as its annotation allows them."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(arguments)
    if isinstance(kind, EnumType):
        return st.sampled_from(list(kind))
    if origin in (Union, types.UnionType):
        return st.one_of([values_of(each) for each in arguments])
    if origin in (list, tuple):
        return st.lists(values_of(arguments[0]), max_size=4).map(origin)
    return st.deferred(lambda: _built(kind)) if origin is None else _dictionaries(*arguments)


def _dictionaries(keys: Any, values: Any) -> st.SearchStrategy[Any]:
    return st.dictionaries(values_of(keys), values_of(values), max_size=4)


def _built(kind: Any) -> st.SearchStrategy[Any]:
    if not issubclass(kind, msgspec.Struct):  # a config, which refuses most values that its types allow
        return st.builds(kind)
    hints = get_type_hints(kind)

    def made(**values: Any) -> Any:
        kept: dict[str, Any] = {}
        try:
            return kind(**values)
        except InvalidValueError:  # settings that check themselves: those of the values that go together
            for name, value in values.items():
                with suppress(InvalidValueError):
                    kind(**kept, **{name: value})
                    kept[name] = value
        try:
            return kind(**kept)
        except InvalidValueError:  # nor may there be nothing
            return reject()

    return st.builds(made, **{name: values_of(hints[name]) for name in kind.__struct_fields__})

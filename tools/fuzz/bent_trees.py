"""Trees of plain values (of JSON, of msgpack) bent at some places: other types, other sizes, less, more, again."""

from collections.abc import Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 255, 2**31, 2**32, 2**53, -(2**63), 2**63 - 1, 2**64 - 1, 0.5, -0.0,
    1e308, -1e-320, 1e-9, float("inf"), float("-inf"), float("nan"), "", "a", "\0", "-1", "1e9", "a" * 5000,
    "\x1b]0;x\x07", "\u202e", "日", "../../etc/passwd", [], {}, [[]], [None], [1, 1, 1], [-1], ["a"], {"a": 1},
    {"": {}}, [[[[[[[[1]]]]]]]],
)  # fmt: skip
"""What stands where something else was meant."""


def any_of(values: Sequence[T]) -> st.SearchStrategy[T]:
    """As hypothesis' `sampled_from`, for values so large that nobody wants them in a message."""
    return st.integers(0, len(values) - 1).map(lambda index: values[index])


@st.composite
def bent(draw: st.DrawFn, tree: Any, more: st.SearchStrategy[Any] | None = None) -> Any:
    """`tree` with one to four changes; what it was stays as it is. `more` are further hostile values."""
    values = any_of(HOSTILE) if more is None else any_of(HOSTILE) | more
    for _ in range(draw(st.integers(1, 4))):
        path = _path(draw, tree)
        tree = _changed(
            tree, path, draw(st.sampled_from(("put", "put", "put", "drop", "double", "wrap", "add"))), draw(values)
        )
    return tree


def _path(draw: st.DrawFn, tree: Any) -> tuple[Any, ...]:
    """To some node, the deeper ones as likely as those above them."""
    path: list[Any] = []
    while isinstance(tree, dict | list | tuple) and tree and draw(st.integers(0, 4)):
        keys = list(tree) if isinstance(tree, dict) else range(len(tree))
        path.append(draw(st.sampled_from(keys)))
        tree = tree[path[-1]]
    return tuple(path)


def _changed(tree: Any, path: tuple[Any, ...], how: str, value: Any) -> Any:
    """The tree with another value at the end of the path."""
    if not path:
        return _new_node(tree, how, value)
    key, *rest = path
    if isinstance(tree, dict):
        if how == "drop" and not rest:
            return {name: child for name, child in tree.items() if name != key}
        return {
            name: _changed(child, tuple(rest), how, value) if name == key else child for name, child in tree.items()
        }
    children = list(tree)
    if how in ("drop", "double") and not rest:
        children[key : key + 1] = [] if how == "drop" else [children[key]] * 2
    else:
        children[key] = _changed(children[key], tuple(rest), how, value)
    return children


def _new_node(node: Any, how: str, value: Any) -> Any:
    if how == "wrap":
        return [node]
    if how == "add" and isinstance(node, dict):
        return {**node, value if isinstance(value, str | int) else "a": value}
    if how == "add" and isinstance(node, list):
        return [*node, value]
    return value

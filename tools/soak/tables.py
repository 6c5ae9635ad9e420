"""Counts what objects of ours hold: entries of every table, by class and attribute, and how many objects there are.

Found by walking from some objects to all that they lead to, so a table that is added tomorrow is counted too.
"""

import functools
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any

OURS = ("pagedchat", "tools")
_CONTAINERS = (dict, list, set, frozenset, tuple, deque, bytearray)
_QUEUES = ("Queue", "SimpleQueue")
_CACHE = type(functools.cache(len))


def table_sizes(roots: Iterable[object]) -> Counter[str]:
    """Entries of every table that can be reached.

    Args:
        roots: where to begin, besides the variables of our own modules.

    Returns:
        `{"Watch._counts": 3, "Sequence": 2, "wrap.wrapped()": 17, ...}`: entries of all tables of this name
        together, objects of a class, results that a function remembers. A table with several names has one of them.
    """
    sizes: Counter[str] = Counter()
    seen: set[int] = set()
    waiting: list[tuple[str, object]] = [("root", root) for root in roots]
    waiting.extend(_variables())
    kept = []
    """So that no id is given out twice."""
    while waiting:
        name, value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        kept.append(value)
        waiting.extend(_parts(name, value, sizes))
    return sizes


def grown(before: Mapping[str, int], after: Mapping[str, int], *, by: int = 0) -> dict[str, tuple[int, int]]:
    """Tables with more entries than before, by more than `by`: name -> before and after."""
    return {
        name: (before.get(name, 0), size) for name, size in sorted(after.items()) if size > before.get(name, 0) + by
    }


def _variables() -> Iterator[tuple[str, object]]:
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] in OURS:
            for name, value in list(vars(module).items()):
                if name.startswith("__"):
                    continue
                yield f"{module_name.rpartition('.')[2]}.{name}", value


def _parts(name: str, value: object, sizes: Counter[str]) -> Iterator[tuple[str, object]]:
    """Count one object; what it leads to."""
    kind = type(value)
    if isinstance(value, _CONTAINERS):
        sizes[name] += len(value)
        yield from ((name, item) for item in _items(value) if _leads_on(item))
    elif isinstance(value, _CACHE):
        sizes[f"{name}()"] += value.cache_info().currsize
    elif isinstance(value, MethodType):
        yield name, value.__self__
    elif isinstance(value, FunctionType):
        for variable, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
            yield f"{value.__name__}.{variable}", _content(cell)
    elif kind.__name__ in _QUEUES and hasattr(value, "qsize"):
        sizes[name] += value.qsize()
    elif kind.__module__.partition(".")[0] in OURS and not isinstance(value, type):
        sizes[kind.__name__] += 1
        yield from ((f"{kind.__name__}.{attribute}", part) for attribute, part in _attributes(value))


def _items(value: Any) -> Iterable[object]:
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return () if isinstance(value, bytearray) else list(value)


def _leads_on(item: object) -> bool:
    return not isinstance(item, (int, str, bytes, float)) and item is not None


def _content(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    yield from list(getattr(value, "__dict__", {}).items())
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            yield slot, getattr(value, slot, None)
    for field in getattr(type(value), "__struct_fields__", ()):
        yield field, getattr(value, field)

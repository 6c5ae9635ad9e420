"""Keys in sentences, as the user has them. Said once, at the start, since sentences are made everywhere."""

import re
from collections.abc import Mapping

_given: dict[str, str] = {}


def call_keys(names: Mapping[str, str]) -> None:
    """From now on keys are called otherwise: `{"^N": "^X"}`."""
    _given.clear()
    _given.update(names)


def with_keys(sentence: str) -> str:
    """A sentence of the program's own, with every key in it under the name that it has now."""
    if not _given:
        return sentence
    pattern = "|".join(map(re.escape, sorted(_given, key=len, reverse=True)))
    return re.sub(rf"(?<![\w^+])(?:{pattern})(?!\w)", lambda found: _given[found[0]], sentence)

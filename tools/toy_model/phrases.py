"""The lists of phrases in `phrases.toml`."""

import tomllib
from functools import cache
from pathlib import Path


@cache
def _all() -> dict[str, dict[str, list[str] | str]]:
    return tomllib.loads(Path(__file__).with_name("phrases.toml").read_text(encoding="utf-8"))


def phrases(table: str, name: str) -> list[str]:
    """One list, as `phrases("forms", "greetings")`.

    Raises:
        KeyError: there is none of this name.
    """
    found = _all()[table][name]
    return found.split() if isinstance(found, str) else found

"""A config.json as it was read, asked for values of certain types. Knows no model."""

from collections.abc import Mapping
from typing import Any


class NotNativeError(Exception):
    """Our own modules do not run this model; the message says why, in words that follow "since"."""


class RawConfig:
    """Values by name, the family's default where the file has none.

    A value of another type is no error here: transformers may know what to do with it.

    Args:
        values: of the file.
        defaults: of the family, for every name that is asked for and may be left out.
    """

    def __init__(self, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self._values = {**defaults, **values}

    def get(self, name: str) -> Any:
        """The value as it is; None where there is none."""
        return self._values.get(name)

    def integer(self, name: str) -> int:
        """A positive whole number.

        Raises:
            NotNativeError: it is something else.
        """
        value = self.optional_integer(name)
        return _unusual(name, value) if value is None else value

    def optional_integer(self, name: str) -> int | None:
        """A positive whole number, or None where there is none.

        Raises:
            NotNativeError: it is something else.
        """
        value = self.get(name)
        if value is None:
            return None
        return value if type(value) is int and value > 0 else _unusual(name, value)

    def number(self, name: str) -> float:
        """A positive number.

        Raises:
            NotNativeError: it is something else.
        """
        value = self.get(name)
        return float(value) if type(value) in (int, float) and value > 0 else _unusual(name, value)

    def flag(self, name: str) -> bool:
        """True or false.

        Raises:
            NotNativeError: it is something else.
        """
        value = self.get(name)
        return value if isinstance(value, bool) else _unusual(name, value)

    def one_of(self, name: str, allowed: Mapping[str, object]) -> str:
        """One of the keys of `allowed`.

        Raises:
            NotNativeError: it is something else.
        """
        value = self.get(name)
        return value if isinstance(value, str) and value in allowed else _unusual(name, value)

    def refuse(self, *names: str) -> None:
        """Do not run a model for which one of these is set.

        Raises:
            NotNativeError: one is.
        """
        for name in names:
            if self.get(name):
                raise NotNativeError(f"its config sets {name}")


def _unusual(name: str, value: object) -> Any:
    raise NotNativeError(f"its {name} is {value!r}")

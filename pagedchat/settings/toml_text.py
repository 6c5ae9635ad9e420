"""A TOML file that people write: read whole, with the line of every key. Knows no setting."""

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagedchat.errors import InvalidValueError, first_line

MOST_BYTES = 1 << 20
_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[\w-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[\w-]+))*)\s*=""")
_PROBE = "a-key-that-nobody-writes"
_SAFE = re.compile(
    r'[^"\\\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\U0010ffff]'
)


@dataclass(frozen=True, slots=True)
class TomlFile:
    """What a file says, and where."""

    path: Path
    text: str
    tables: dict[str, Any]

    def where(self, *keys: str) -> str:
        """`config.toml, line 3`, for the beginning of a sentence."""
        line = self._line_of(".".join(keys))
        return f"{self.path}, line {line}" if line else str(self.path)

    def _line_of(self, wanted: str) -> int:
        """The line on which a key is given a value, or a table that has it; 0 if none is found.

        What stands before a line of a statement is TOML by itself, and says which table the line is in.
        """
        lines = self.text.splitlines()
        for index, line in enumerate(lines):
            found = _KEY.match(line)
            table = _open_table(lines[:index]) if found else None
            if found is None or table is None:
                continue
            key = ".".join([*table, *(part.strip(" \t\"'") for part in _parts(found[1]))])
            if key == wanted or wanted.startswith(f"{key}.") or key.startswith(f"{wanted}."):
                return index + 1
        return 0


def _parts(key: str) -> list[str]:
    return re.findall(r"""\"[^"]*\"|'[^']*'|[\w-]+""", key)


def _open_table(lines: list[str]) -> list[str] | None:
    """The table that a key after these lines would be in; None in the middle of a value."""
    try:
        level = tomllib.loads("\n".join([*lines, f"{_PROBE} = 1", ""]))
    except (tomllib.TOMLDecodeError, RecursionError):
        return None
    return _path_to_probe(level)


def _path_to_probe(level: Any) -> list[str] | None:
    if isinstance(level, list):  # of tables; the last one is open
        return _path_to_probe(level[-1]) if level else None
    if not isinstance(level, dict):
        return None
    if _PROBE in level:
        return []
    for name, inner in level.items():
        path = _path_to_probe(inner)
        if path is not None:
            return [name, *path]
    return None


def read_toml(path: Path) -> TomlFile:
    """Read a file.

    Raises:
        InvalidValueError: it cannot be read, or is no TOML; the message names the line.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise InvalidValueError(f"{path} cannot be read: {reason}.", "Name another with --config FILE.") from None
    if len(data) > MOST_BYTES:
        raise InvalidValueError(
            f"{path} is larger than settings ever are (1 MiB).", "Name another with --config FILE."
        )
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
        return TomlFile(path, text, tomllib.loads(text))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidValueError(f"{path}, line {line}: this is not text in UTF-8.", "Save it as UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidValueError(
            _syntax(path, text, str(error)), "See https://toml.io for how TOML is written."
        ) from None
    except RecursionError:
        raise InvalidValueError(
            f"{path} is nested too deeply.", "Settings are flat: one name, one value."
        ) from None


def _syntax(path: Path, text: str, words: str) -> str:
    """`Expected '=' (at line 3, column 5)` with the line in front."""
    found = re.fullmatch(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", words, re.DOTALL)
    reason = (found[1] if found else words).rstrip(".")
    line = found[2] if found and found[2] else len(text.splitlines())
    return f"{path}, line {line}: this is not TOML ({reason[:1].lower()}{reason[1:120]})."


def toml_value(value: object) -> str:
    """A value as TOML writes it, with everything escaped that a terminal could obey."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    return '"' + "".join(char if _SAFE.match(char) else _escaped(char) for char in str(value)) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    number = ord(char)
    if 0xD800 <= number <= 0xDFFF:  # of a broken file name; TOML has no way to write it
        return "\ufffd"
    return (
        json.dumps(char)[1:-1] if number < 0x20 else f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
    )

"""What holds of all settings: a file's over the defaults, over these the environment's. Knows none by its name.

Each value is checked where it comes from, so that whoever wrote it is told where it stands.
"""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pagedchat.bounds import shown
from pagedchat.errors import InvalidValueError

if TYPE_CHECKING:
    from pagedchat.remote.openai.address import ServerAddress
    from pagedchat.settings.toml_text import TomlFile

Kind = Literal["flag", "whole", "number", "text", "texts", "size"]
KEYMAP, SERVERS = "keymap", "servers"
PREFIX = "PAGEDCHAT_"
_TYPES: dict[Kind, tuple[tuple[type, ...], str]] = {
    "flag": ((bool,), "true or false"),
    "whole": ((int,), "a whole number"),
    "number": ((int, float), "a number"),
    "text": ((str,), "a text in quotes"),
    "texts": ((str, list), "a text in quotes, or a list of them"),
    "size": ((int, str), 'a size like "2GiB", or a number of bytes'),
}
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class Setting(msgspec.Struct, frozen=True):
    """One thing that may be set."""

    name: str
    """As the command line has it, without the dashes: `top-p`."""
    dest: str
    """As the program has it: `top_p`."""
    kind: Kind
    default: Any
    check: Callable[[Any], Any]
    """Makes the value what the program takes; raises `InvalidValueError`, which names the option."""
    flag_value: bool = True
    """What a flag that is true sets."""

    @property
    def variable(self) -> str:
        """In the environment: `PAGEDCHAT_TOP_P`."""
        return PREFIX + self.name.replace("-", "_").upper()


class Settings(msgspec.Struct):
    """What holds, and where each value is from."""

    values: dict[str, Any] = msgspec.field(default_factory=dict)
    """Destination -> value."""
    sources: dict[str, str] = msgspec.field(default_factory=dict)
    """Destination -> `default`, `~/.config/pagedchat/config.toml, line 3`, `PAGEDCHAT_TOP_P`, `command line`."""
    keymap: dict[str, str] = msgspec.field(default_factory=dict)
    """Action -> keys, with commas between them."""
    keymap_sources: dict[str, str] = msgspec.field(default_factory=dict)
    servers: "dict[str, ServerAddress]" = msgspec.field(default_factory=dict)
    """Those that a file names."""

    def set(self, setting: Setting, value: Any, source: str) -> None:
        """This one holds, whatever held before."""
        self.values[setting.dest], self.sources[setting.dest] = value, source


def take_file(settings: Settings, known: Iterable[Setting], file: "TomlFile") -> None:
    """What a file sets.

    Raises:
        InvalidValueError: a name that nobody knows, or a value that cannot be; names file and line.
    """
    by_name = {setting.name: setting for setting in known}
    for key, value in file.tables.items():
        name = key.replace("_", "-")
        if key == KEYMAP:
            _take_keymap(settings, file, value)
        elif key == SERVERS:
            from pagedchat.settings.servers import read_servers  # noqa: PLC0415 - only who has some

            settings.servers = read_servers(file, value)
        elif name not in by_name:
            raise _unknown(file, key, [*by_name, KEYMAP, SERVERS])
        else:
            setting = by_name[name]
            settings.set(setting, _checked(setting, value, file.where(key)), file.where(key))


def _take_keymap(settings: Settings, file: "TomlFile", table: Any) -> None:
    if not isinstance(table, dict):
        raise InvalidValueError(f"{file.where(KEYMAP)}: keymap is a table of keys, not {shown(table)}.",
                                'Write [keymap], and below it lines like "chat.new" = "ctrl+n".')  # fmt: skip
    for action, listed in _flat(table):
        where = file.where(KEYMAP, *action.split("."))
        texts = isinstance(listed, list) and all(isinstance(key, str) for key in listed)
        keys = ",".join(listed) if texts else listed
        if not isinstance(keys, str) or not keys.strip():
            raise InvalidValueError(f"{where}: {shown(action)} is {shown(keys)}.",
                                    'It must be a key like "ctrl+n", or several with commas between.')  # fmt: skip
        settings.keymap[action], settings.keymap_sources[action] = keys, where


def _flat(table: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, Any]]:
    """TOML takes `chat.new = "x"` without quotes for a table in a table."""
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{before}{name}.")
        else:
            yield before + name, value


def _unknown(file: "TomlFile", key: str, names: list[str]) -> InvalidValueError:
    near = get_close_matches(key.lower().replace("_", "-"), names, 1, 0.5)
    question = f" Did you mean {near[0]}?" if near else ""
    return InvalidValueError(
        f"{file.where(key)}: there is no setting {shown(key)}.{question}", "pagedchat --print-config names all."
    )


def _checked(setting: Setting, value: Any, where: str) -> Any:
    """The value, of the type and within the bounds that the setting wants."""
    types, expected = _TYPES[setting.kind]
    right = isinstance(value, types) and (setting.kind == "flag" or not isinstance(value, bool))
    if setting.kind == "texts" and isinstance(value, list):
        right = all(isinstance(text, str) for text in value)
    if not right:
        raise InvalidValueError(f"{where}: {setting.name} is {shown(value)}.", f"It must be {expected}.")
    try:
        if setting.kind == "flag":
            return setting.flag_value if value else not setting.flag_value
        return setting.check(value)
    except InvalidValueError as error:
        raise InvalidValueError(f"{where}: {error.message}", error.hint) from None


def take_environment(settings: Settings, known: Iterable[Setting], environ: Mapping[str, str]) -> None:
    """What variables set; an empty one sets nothing.

    Raises:
        InvalidValueError: a value that cannot be; names the variable.
    """
    for setting in known:
        text = environ.get(setting.variable, "")
        if text:
            value = _checked(setting, _read(setting, text), setting.variable)
            settings.set(setting, value, setting.variable)


def _read(setting: Setting, text: str) -> Any:
    """The variable's text as a value; what cannot be one stays text, and is refused as such."""
    if setting.kind == "flag":
        word = text.strip().lower()
        return True if word in _TRUE else False if word in _FALSE else text
    if setting.kind in ("whole", "number"):
        try:
            return int(text)
        except ValueError:
            pass
        try:
            return float(text) if setting.kind == "number" else text
        except ValueError:
            return text
    return text

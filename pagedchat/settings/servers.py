"""The servers that a settings file names: `[servers.NAME]` with a URL, and where its key is."""

import re
from difflib import get_close_matches
from typing import Any

from pagedchat.bounds import Number, shown
from pagedchat.errors import InvalidValueError
from pagedchat.remote.openai.address import DEFAULT_TIMEOUT, LONGEST_TIMEOUT, ServerAddress, checked_url
from pagedchat.remote.openai.kinds import NAMES
from pagedchat.settings.toml_text import TomlFile, toml_value

TABLE = "servers"
_NAME = re.compile(r"[A-Za-z][\w-]{0,39}", re.ASCII)
_TAKEN = frozenset({"local", "localhost"})
_FIELDS = ("url", "model", "api_key_env", "timeout", "kind")
_VARIABLE = re.compile(r"[A-Za-z_]\w{0,199}", re.ASCII)
_EXAMPLE = 'Write [servers.lab], and below it url = "http://lab:8000/v1".'


def read_servers(file: TomlFile, table: Any) -> dict[str, ServerAddress]:
    """All of them, by name.

    Raises:
        InvalidValueError: something that cannot be; names file and line.
    """
    if not isinstance(table, dict):
        raise InvalidValueError(f"{file.where(TABLE)}: servers is a table, not {shown(table)}.", _EXAMPLE)
    return {name: _server(file, name, fields) for name, fields in table.items()}


def _server(file: TomlFile, name: str, fields: Any) -> ServerAddress:
    where = file.where(TABLE, name)
    if not isinstance(fields, dict):
        raise InvalidValueError(f"{where}: servers.{shown(name)} is no table.", _EXAMPLE)
    if not _NAME.fullmatch(name) or name in _TAKEN:
        raise InvalidValueError(
            f"{where}: a server cannot be called {shown(name)}.",
            "Names are letters, digits, - and _; local is taken.",
        )
    for field in fields:
        if field not in _FIELDS:
            raise _unknown(file, name, field)
    if "url" not in fields:
        raise InvalidValueError(f"{where}: servers.{name} has no url.", _EXAMPLE)
    texts = {
        field: _text(file, name, field, fields.get(field, "")) for field in ("url", "model", "api_key_env", "kind")
    }
    if texts["api_key_env"] and not _VARIABLE.fullmatch(texts["api_key_env"]):
        raise InvalidValueError(
            f"{file.where(TABLE, name, 'api_key_env')}: api_key_env is the name of a variable, not a key itself.",
            "Put the key into the environment and write the variable's name here.",
        )
    if texts["kind"] not in ("", *NAMES):
        raise InvalidValueError(
            f"{file.where(TABLE, name, 'kind')}: kind is {shown(texts['kind'])}.",
            f"It is one of {', '.join(NAMES)}.",
        )
    try:
        url = checked_url("url", texts["url"])
        timeout = Number(1, LONGEST_TIMEOUT).check("timeout", fields.get("timeout", DEFAULT_TIMEOUT))
    except InvalidValueError as error:
        raise InvalidValueError(f"{where}: {error.message}", error.hint) from None
    return ServerAddress(name, url, texts["model"], texts["api_key_env"], timeout, texts["kind"], is_named=True)


def _text(file: TomlFile, name: str, field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidValueError(
            f"{file.where(TABLE, name, field)}: {field} is {shown(value)}.", "It must be a text in quotes."
        )
    return value


def _unknown(file: TomlFile, name: str, field: str) -> InvalidValueError:
    """Nothing of the value is shown: it may be a key."""
    where = file.where(TABLE, name, field)
    if field in ("api_key", "key", "token"):
        return InvalidValueError(
            f"{where}: keys are not kept in the settings file.",
            'Put it into a variable and write api_key_env = "THAT_VARIABLE".',
        )
    near = get_close_matches(field, _FIELDS, 1, 0.5)
    question = f" Did you mean {near[0]}?" if near else f" There are {', '.join(_FIELDS)}."
    return InvalidValueError(f"{where}: servers have no {shown(field)}.{question}")


def printed_server(server: ServerAddress) -> list[str]:
    """As the file has it; what a key is, is in no file."""
    values = {"url": server.url, "model": server.model, "api_key_env": server.key_env, "timeout": server.timeout}
    values["kind"] = server.kind
    told = [f"{field} = {toml_value(value)}" for field, value in values.items() if value]
    return ["", f"[{TABLE}.{server.name}]", *told]

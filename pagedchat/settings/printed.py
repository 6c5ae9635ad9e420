"""What `--print-config` prints: TOML that can be saved as it is, and behind each value where it is from."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from pagedchat.config import GIB
from pagedchat.settings.servers import printed_server
from pagedchat.settings.sources import PREFIX, Setting, Settings
from pagedchat.settings.toml_text import toml_value

_CELLS = 40


def printed(
    settings: Settings, known: Iterable[Setting], keys: Mapping[str, str], path: Path, environ: Mapping[str, str]
) -> str:
    """All settings and keys; what is left to the model or the machine is a comment.

    Args:
        settings: what holds.
        known: all that may be set.
        keys: action -> its keys, of every action.
        path: where the file is, or would be.
        environ: variables that nobody knows are named.
    """
    known = list(known)
    state = "" if path.exists() else " (there is none)"
    lines = [f"# Settings come from {_plain(str(path))}{state}, from {PREFIX}* and from the command line."]
    lines += [_line(setting, settings) for setting in known]
    lines += ["", "[keymap]"]
    for action, default in keys.items():
        chosen = settings.keymap.get(action, default)
        source = settings.keymap_sources.get(action, "default")
        lines.append(_with_source(f"{toml_value(action)} = {toml_value(chosen)}", source))
    for server in settings.servers.values():
        lines += printed_server(server)
    others = sorted(set(_ours(environ)) - {setting.variable for setting in known})
    lines += [f"# {name} is in the environment; no setting is called so." for name in others]
    return "\n".join(lines)


def _line(setting: Setting, settings: Settings) -> str:
    value, source = settings.values[setting.dest], settings.sources[setting.dest]
    if value is None:
        return _with_source(f"# {setting.name} =", f"{source}: left to the model or the machine")
    if setting.kind == "flag":
        value = value is setting.flag_value
    if setting.kind == "size" and value and value % GIB == 0:
        value = f"{value // GIB}GiB"
    return _with_source(f"{setting.name} = {toml_value(value)}", source)


def _with_source(line: str, source: str) -> str:
    return f"{line:<{_CELLS}} # {_plain(source)}"


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def _ours(environ: Mapping[str, str]) -> Iterable[str]:
    return (_plain(name) for name in environ if name.startswith(PREFIX) and name not in _NO_SETTINGS)


_NO_SETTINGS = (f"{PREFIX}CONFIG", f"{PREFIX}CACHE_DIR", f"{PREFIX}LOG")
"""Variables that mean something else than a setting."""

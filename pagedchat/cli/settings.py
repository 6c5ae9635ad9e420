"""The command line over the environment over the settings file: one namespace of what holds.

Starts nothing and imports nothing heavy, unless a theme or a key is named.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from pagedchat.cli.known_settings import known_settings
from pagedchat.cli.themes import chosen_theme
from pagedchat.errors import InvalidValueError
from pagedchat.settings.places import config_path, remembered_path
from pagedchat.settings.remembered import remembered_theme
from pagedchat.settings.sources import PREFIX, Setting, Settings, take_environment, take_file

CONFIG_VARIABLE = f"{PREFIX}CONFIG"


def with_settings(
    parser: argparse.ArgumentParser, argv: Sequence[str], environ: Mapping[str, str] | None = None
) -> argparse.Namespace:
    """What holds for this run; `given` names what stood on the command line, `keymap` and `servers` are of a file.

    Raises:
        InvalidValueError: something that cannot be, with the file and line, the variable or the option.
        SystemExit: after --help, --version and --print-config.
    """
    environ = os.environ if environ is None else environ
    known = known_settings(parser)
    given = _given(parser, argv)
    settings = Settings()
    for setting in known:
        settings.set(setting, setting.default, "default")
    path = _path(given, environ)
    if path is not None:
        from pagedchat.settings.toml_text import read_toml  # noqa: PLC0415 - only who has a file reads one

        take_file(settings, known, read_toml(path))
    take_environment(settings, known, environ)
    _check_keymap(settings)
    for setting in known:
        if setting.dest in given:
            value = getattr(given, setting.dest)
            settings.set(setting, value if setting.kind == "flag" else setting.check(value), "command line")
    if getattr(given, "print_config", False):
        _print(settings, known, path or _default_path(given, environ), environ)
        parser.exit()
    rest = {name: value for name, value in vars(given).items() if name not in settings.values}
    defaults = {"prompt": None, "go_on": False, "resume": None, "command": "chat"}
    return argparse.Namespace(
        **defaults | rest | settings.values,
        given=frozenset(vars(given)),
        keymap=settings.keymap,
        servers=settings.servers,
    )


def _given(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """Only what stands on the command line."""
    before = [(action, action.default) for action in parser._actions]
    for action, _ in before:
        action.default = argparse.SUPPRESS
    try:
        return parser.parse_args(argv)
    finally:
        for action, default in before:
            action.default = default


def _path(given: argparse.Namespace, environ: Mapping[str, str]) -> Path | None:
    """The file to be read; None where none was named and there is none. One that was named must be there."""
    path = _default_path(given, environ)
    named = hasattr(given, "config") or environ.get(CONFIG_VARIABLE)
    try:
        return path if named or path.exists() else None
    except OSError:  # a folder that may not be looked into is as good as none
        return None


def _default_path(given: argparse.Namespace, environ: Mapping[str, str]) -> Path:
    name = getattr(given, "config", None) or environ.get(CONFIG_VARIABLE)
    return _expanded(name) if name else config_path()


def _expanded(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:
        raise InvalidValueError(
            f"{name}: there is no home folder of that name.", "Name a file with --config."
        ) from None


def _check_keymap(settings: Settings) -> None:
    if settings.keymap:
        from pagedchat.tui.keymap import check_keymap  # noqa: PLC0415 - loads Textual

        settings.keymap = check_keymap(settings.keymap, settings.keymap_sources)


def _print(settings: Settings, known: Sequence[Setting], path: Path, environ: Mapping[str, str]) -> None:
    from pagedchat.settings.printed import printed  # noqa: PLC0415 - as above
    from pagedchat.tui.keymap import all_keys  # noqa: PLC0415 - as above

    chosen = chosen_theme(settings.values["theme"], remembered_theme(remembered_path()), environ)
    if chosen != settings.values["theme"]:
        settings.sources["theme"] += f": {chosen} now"
    print(printed(settings, known, all_keys(), path, environ))

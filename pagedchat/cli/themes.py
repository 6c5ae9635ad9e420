"""The colours by name: those of the screen's library, and `auto`, `dark` and `light`. Draws nothing."""

from collections.abc import Mapping
from difflib import get_close_matches

from pagedchat.bounds import shown
from pagedchat.errors import InvalidValueError

AUTO, DARK, LIGHT = "auto", "dark", "light"
_DARK_THEME, _LIGHT_THEME = "textual-dark", "textual-light"
_LIGHT_BACKGROUNDS = frozenset({"7", "15"})
"""Of the sixteen colours of a terminal, as COLORFGBG names them."""


def check_theme(option: str, value: object) -> str:
    """A name of colours.

    Raises:
        InvalidValueError: there are none of this name; the hint names the nearest.
    """
    from textual.theme import BUILTIN_THEMES  # noqa: PLC0415 - only who names a theme waits for Textual

    names = [AUTO, DARK, LIGHT, *BUILTIN_THEMES]
    if isinstance(value, str) and value in names:
        return value
    near = get_close_matches(str(value), names, 1, 0.5)
    question = f" Did you mean {near[0]}?" if near else ""
    raise InvalidValueError(f"{option} is {shown(value)}.{question}", f"There are {', '.join(names)}.")


def chosen_theme(name: str, remembered: str | None, environ: Mapping[str, str]) -> str:
    """What to start with: the one that was named, else the one chosen last, else by the terminal's background.

    A terminal that says which colours it has (COLORFGBG, as rxvt, Konsole and others set it: `0;15`) gets light
    ones on a light background.
    """
    from textual.theme import BUILTIN_THEMES  # noqa: PLC0415 - as above

    if name != AUTO:
        return {DARK: _DARK_THEME, LIGHT: _LIGHT_THEME}.get(name, name)
    if remembered in BUILTIN_THEMES:
        return str(remembered)
    light = environ.get("COLORFGBG", "").rpartition(";")[2] in _LIGHT_BACKGROUNDS
    return _LIGHT_THEME if light else _DARK_THEME

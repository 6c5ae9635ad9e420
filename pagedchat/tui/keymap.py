"""Keys that a user gave to actions: whether there are such actions and keys, and that no key has two meanings.

Where each key is bound, and what is done with it, is not known here.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches

from textual.binding import Binding
from textual.keys import Keys, _character_to_key

from pagedchat.bounds import shown
from pagedchat.errors import InvalidValueError
from pagedchat.tui.actions import APP_ACTIONS, CHAT_ACTIONS, COMPOSER_ACTIONS, FOCUS_BINDINGS, PALETTE
from pagedchat.tui.inspector.inspector_keys import INSPECTOR_ACTIONS

_ELSEWHERE = frozenset({"ctrl+i", "ctrl+m", "ctrl+h"})
"""Tab, Enter and Backspace by other names."""
_SIGNS = {_character_to_key(chr(code)): chr(code) for code in range(0x20, 0x7F)}
"""As Textual names what is written: `question_mark` -> `?`."""
_NAMES = frozenset(key.value for key in Keys if not key.value.startswith("<")) | _SIGNS.keys()
_MODIFIER = re.compile(r"(?:ctrl|alt|shift|super|hyper|meta)\+")


def all_keys() -> dict[str, str]:
    """Action -> its keys by default, with commas between them."""
    return _chat_keys() | _inspector_keys()


def _chat_keys() -> dict[str, str]:
    actions = (*COMPOSER_ACTIONS, *CHAT_ACTIONS, *APP_ACTIONS, PALETTE)
    return {action.id: action.keys for action in actions} | {
        _id(binding): binding.key for binding in FOCUS_BINDINGS
    }


def _inspector_keys() -> dict[str, str]:
    return {action.id: action.keys for action in INSPECTOR_ACTIONS}


def _id(binding: Binding) -> str:
    return binding.id or ""


def check_keymap(keymap: Mapping[str, str], sources: Mapping[str, str]) -> dict[str, str]:
    """The keymap with its keys as Textual names them.

    Raises:
        InvalidValueError: an action or a key that is not there, or a key for two actions; says where it stands.
    """
    known = all_keys()
    checked = {}
    for action, keys in keymap.items():
        if action not in known:
            near = get_close_matches(action, known, 1, 0.5)
            question = f" Did you mean {near[0]}?" if near else ""
            raise InvalidValueError(f"{sources[action]}: there is no action {shown(action)}.{question}",
                                    "pagedchat --print-config names all.")  # fmt: skip
        checked[action] = ",".join(_key(key, action, sources[action]) for key in keys.split(","))
        _refuse_letters(action, checked[action], sources[action])
    for group in (_chat_keys(), _inspector_keys()):
        _refuse_clashes(
            {**group, **{name: keys for name, keys in checked.items() if name in group}}, checked, sources
        )
    return checked


def _key(text: str, action: str, where: str) -> str:
    """One key; `^N` and `Ctrl+N` mean `ctrl+n`."""
    key = text.strip()
    if len(key) == 1:
        return _character_to_key(key)
    key = f"ctrl+{key[1:]}" if key.startswith("^") else key
    key = key.lower() if "+" in key or key.lower() in _NAMES else key
    plain = _MODIFIER.sub("", key)
    if key in _ELSEWHERE or not (len(plain) == 1 or plain in _NAMES):
        near = get_close_matches(key, _NAMES, 1, 0.6)
        question = f" Did you mean {near[0]}?" if near and key not in _ELSEWHERE else ""
        raise InvalidValueError(f"{where}: {action} cannot have the key {shown(text)}.{question}",
                                'Write keys like "ctrl+n", "f9", "alt+enter" or "x".')  # fmt: skip
    return key if len(plain) > 1 else key[:-1] + _character_to_key(plain)


def _refuse_letters(action: str, keys: str, where: str) -> None:
    """In the inspector nothing is written; everywhere else a letter is a part of the prompt."""
    for key in keys.split(","):
        if action in _chat_keys() and (key in _SIGNS or len(key) == 1):
            raise InvalidValueError(f"{where}: {action} cannot have the key {shown(key)}, which writes a letter.",
                                    'Take one with Ctrl or Alt, or one like "f9".')  # fmt: skip


def _refuse_clashes(keys: Mapping[str, str], changed: Mapping[str, str], sources: Mapping[str, str]) -> None:
    owners: dict[str, str] = {}
    for action, listed in keys.items():
        for key in listed.split(","):
            other = owners.setdefault(key, action)
            if other != action:
                where = sources[action if action in changed else other]
                raise InvalidValueError(f"{where}: the key {shown(key)} has two actions, {other} and {action}.",
                                        "Give one of them another key.")  # fmt: skip

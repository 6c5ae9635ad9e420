"""Whether a name can be a model's, before the one that is loaded has to make room for it."""

from difflib import get_close_matches
from pathlib import Path

from pagedchat import bundled
from pagedchat.bounds import shown
from pagedchat.errors import InvalidValueError
from pagedchat.hub_names import hub_name
from pagedchat.local_models import local_models


def checked_model(name: str) -> str:
    """The name, as `--model` takes it.

    Raises:
        InvalidValueError: there is no such folder or file, and no hub id looks so; the hint has the nearest name.
    """
    if name == bundled.NAME or _exists(name) or ("/" in name and hub_name(name) is not None):
        return name
    found = [model.name for model in local_models()]
    if name in found:
        return name
    near = get_close_matches(name, found, 1, 0.5) or [model for model in found if name.lower() in model.lower()]
    raise InvalidValueError(
        f"There is no model called {shown(name)} on this machine.",
        f"Did you mean {near[0]}?"
        if near
        else "Give a hub id like Qwen/Qwen2.5-0.5B-Instruct, a folder or a GGUF file.",
    )


def _exists(name: str) -> bool:
    try:
        return Path(name).expanduser().exists()
    except (OSError, RuntimeError, ValueError):
        return False

"""Which models a server has, and by their owner what the server runs."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

from pagedchat.bounds import is_unicode, shown
from pagedchat.chat.sanitize import one_line
from pagedchat.errors import InvalidValueError
from pagedchat.remote.openai.kinds import UNKNOWN, ServerKind, kind_of
from pagedchat.remote.openai.plain import at, number_at, text_at

if TYPE_CHECKING:
    from openai import AsyncOpenAI

MOST_MODELS = 10_000
_MOST_NAME = 1000
_NO_LIST = (404, 405, 501)
"""What servers answer that have no list of models."""


class FoundModels(NamedTuple):
    """What `/v1/models` told."""

    kind: ServerKind
    contexts: dict[str, int]
    """Name -> tokens that fit, 0 where that is not told."""


async def find_models(client: "AsyncOpenAI", named: str = "") -> FoundModels:
    """Ask for the list. A server without one is taken at its word where a model is `named`.

    Raises:
        Exception: whatever the client raises.
        ValueError: the answer is no list of models.
    """
    try:
        listed = at(await client.models.list(), "data")
    except Exception as error:
        if not named or at(error, "status_code") not in _NO_LIST:
            raise
        return FoundModels(UNKNOWN, {})
    if not isinstance(listed, list):
        raise ValueError("no list of models")
    contexts: dict[str, int] = {}
    kind = UNKNOWN
    for model in listed[:MOST_MODELS]:
        name = text_at(model, "id")
        if name and len(name) <= _MOST_NAME and is_unicode(name):
            kind = kind_of(text_at(model, "owned_by")) if kind is UNKNOWN else kind
            contexts[name] = _context(model)
    return FoundModels(kind, contexts)


def _context(model: object) -> int:
    """Tokens of a chat; 0: it is not told. A slot of llama.cpp's has a part of what the model could have."""
    places = (("max_model_len",), ("meta", "n_ctx"), ("meta", "n_ctx_train"))
    return next((number for place in places if (number := number_at(model, *place))), 0)


def check_model(server: str, names: Sequence[str], model: str) -> None:
    """Whether a server that told these names can be asked for a model.

    Raises:
        InvalidValueError: it has none of this name; the hint has the nearest.
    """
    if names and model not in names:
        near = get_close_matches(model, names, 1, 0.4)
        hint = f"Did you mean {shown(near[0])}?" if near else "^L lists what it has."
        raise InvalidValueError(f"{one_line(server)} has no model called {shown(model)}.", hint)

"""Which of the GGUF models in a repository of the hub a name means: by tag, by file, or by preference where neither
is said. Knows the names of files; opens none, asks nobody.
"""

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

from pagedchat.errors import ModelError
from pagedchat.gguf_names import GgufNames, gguf_models
from pagedchat.hub_names import HubName, is_gguf_path

PREFERRED = ("Q4_K_M", "Q8_0")
"""Tags that are looked for, in this order, where a name has none."""
MOST_SHOWN = 4
"""Choices that a sentence lists: those nearest to what was asked for."""
_MOST_COMPARED = 500


def ggufs_in(files: Iterable[str]) -> list[GgufNames]:
    """The models among the files of a repository, by paths in it; what cannot be typed is left out."""
    return gguf_models(file for file in files if is_gguf_path(file))


def find_gguf(wanted: HubName, models: Sequence[GgufNames], *, loosely: bool = True) -> GgufNames | None:
    """The model that is meant; None if there is no such one.

    A tag means the models that have it as their own or as a whole word, and only where there are none those that
    have it as a piece of a word, as `Q4_K` is one of `Q4_K_M`.

    Args:
        wanted: what was asked for.
        models: to choose from.
        loosely: whether pieces of words count.

    Raises:
        ModelError: it can be several; the hint lists them as they are to be typed.
    """
    found = _meant(wanted, models, loosely)
    if len(found) > 1:
        raise _several(wanted, found, models)
    return found[0] if found else None


def no_such_gguf(wanted: HubName, models: Sequence[GgufNames]) -> ModelError:
    """The error where `find_gguf` finds none among the models of a repository."""
    if not models:
        return ModelError(f"{wanted.repo} has no GGUF model.", "Choose another model.")
    shown = _shown(wanted, models, models)
    more = f" and {len(models) - len(shown)} more" if len(models) > len(shown) else ""
    return ModelError(
        f"{wanted.repo} has no GGUF model called {wanted.tag or wanted.file}.", f"It has {', '.join(shown)}{more}."
    )


def typed_name(repo: str, model: GgufNames, models: Sequence[GgufNames]) -> str:
    """What means this one of a repository's models: `OWNER/NAME:TAG`, or with its file where no tag does."""
    if model.tag and _with_tag(model.tag, models) == [model]:
        return f"{repo}:{model.tag}"
    return f"{repo}/{model.files[0]}"


def nearest_names(wanted: HubName, models: Sequence[GgufNames]) -> list[str]:
    """Of a repository's models the `MOST_SHOWN` nearest to what was asked for, as they are to be typed."""
    return _shown(wanted, models, models)


def _meant(wanted: HubName, models: Sequence[GgufNames], loosely: bool) -> Sequence[GgufNames]:
    if wanted.file:
        return [model for model in models if wanted.file in model.files]
    if wanted.tag:
        return _with_tag(wanted.tag, models) or (_with_piece(wanted.tag, models) if loosely else [])
    preferred = (_with_tag(tag, models) for tag in PREFERRED) if len(models) > 1 else ()
    return next(filter(None, preferred), models)


def _with_tag(tag: str, models: Sequence[GgufNames]) -> list[GgufNames]:
    """As their own tag, or as a whole word beside it: `Q4_K_M` is no such word of `UD-Q4_K_M`."""
    tag = tag.upper()
    word = re.compile(rf"(?<![A-Z0-9_]){re.escape(tag)}(?![A-Z0-9_])")
    return [
        model for model in models if model.tag == tag or (tag not in model.tag and word.search(model.stem.upper()))
    ]


def _with_piece(tag: str, models: Sequence[GgufNames]) -> list[GgufNames]:
    piece = re.compile(rf"(?<![A-Z0-9]){re.escape(tag.upper())}(?![A-Z0-9])")
    return [model for model in models if piece.search(model.stem.upper())]


def _several(wanted: HubName, found: Sequence[GgufNames], models: Sequence[GgufNames]) -> ModelError:
    shown = _shown(wanted, found, models)
    which = ", ".join(shown[:-1]) + (" or " if len(found) == len(shown) else ", ") + shown[-1]
    return ModelError(
        f"{wanted.text} can be {len(found)} GGUF models.",
        f"Name one of them: {which}{' or another' if len(found) > len(shown) else ''}.",
    )


def _shown(wanted: HubName, found: Sequence[GgufNames], models: Sequence[GgufNames]) -> list[str]:
    """Those nearest to what was asked for, as they are to be typed."""
    asked = (wanted.tag or wanted.file or PREFERRED[0]).upper()

    def distance(model: GgufNames) -> float:
        name = model.stem.upper() if wanted.file else model.tag or model.stem.upper()
        return -SequenceMatcher(None, name, asked).ratio()

    nearest = sorted(found[:_MOST_COMPARED], key=distance)[:MOST_SHOWN]
    return [typed_name(wanted.repo, model, models) for model in nearest]

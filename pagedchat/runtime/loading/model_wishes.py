"""How a model wants its tokens drawn and where its texts end, by generation_config.json, as far as that can be.

A file that is broken or wants what cannot be is no reason to refuse a model: what is wrong with it is passed over,
and said.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pagedchat.bounds import shown
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.errors import InvalidValueError
from pagedchat.models.generation_config import (
    FILE,
    NAMES,
    eos_token_ids,
    read_generation_config,
    sampling_values,
)


@dataclass(frozen=True, slots=True)
class ModelWishes:
    """What a request follows where it says nothing."""

    sampling: dict[str, Any]
    """`SamplingParams` fields."""
    eos_token_ids: frozenset[int]
    notices: tuple[str, ...] = field(default=())
    """What was passed over and why, in sentences for people."""

    @property
    def sampling_params(self) -> SamplingParams:
        """For a request; it goes on until the context is full if the model sets no end."""
        return SamplingParams(**{"max_tokens": None, **self.sampling})


def model_wishes(folder: Path) -> ModelWishes:
    """Read the file in `folder`; beside a GGUF file there is none that counts."""
    if folder.is_file():
        return ModelWishes(sampling_values({}), frozenset())
    try:
        config = read_generation_config(folder)
    except (OSError, ValueError) as error:
        return ModelWishes(
            sampling_values({}), frozenset(), (f"{FILE} cannot be read: {error}. It is passed over.",)
        )
    notices = []
    for name, value in list(config.items()):
        try:
            _check(name, value)
        except InvalidValueError as error:
            del config[name]
            notices.append(f"In {FILE} {name} is {shown(value)}. {error.hint} It is passed over.")
    return ModelWishes(sampling_values(config), eos_token_ids(config), tuple(notices))


def _check(name: str, value: object) -> None:
    if name in NAMES and value is not None:
        SamplingParams(**{NAMES[name]: value})  # type: ignore[arg-type]  # checked here
    elif name == "eos_token_id":
        eos_token_ids({name: value})

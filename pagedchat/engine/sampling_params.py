"""How the next token is chosen, named as vLLM's users know it."""

from collections.abc import Callable
from enum import Enum
from typing import Any

import msgspec

from pagedchat.bounds import (
    INT32_MAX,
    LEAST_ON_WIRE,
    MOST_ON_WIRE,
    Number,
    Whole,
    check_flag,
    check_texts,
    refused,
)
from pagedchat.errors import InvalidValueError

MAX_STOP_STRINGS = 64
"""Of one request, those of a transcript template (two) among them."""
MAX_STOP_CHARACTERS = 65_536
"""Of all stop strings of one request together."""


class RequestOutputKind(Enum):
    """What the outputs of one request hold, where they are read step by step."""

    CUMULATIVE = 0
    """Everything so far, in each of them."""
    DELTA = 1
    """What came since the output before."""
    FINAL_ONLY = 2
    """Everything, in a single one at the end."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one request. The neutral defaults sample from the model's distribution as it is."""

    temperature: float = 1.0
    """0 is greedy: always the most likely token."""
    top_p: float = 1.0
    """Keep the most likely tokens whose probabilities sum to this (nucleus sampling, Holtzman et al. 2019)."""
    top_k: int = 0
    """Keep this many most likely tokens; 0 or -1 keeps all."""
    min_p: float = 0.0
    """Keep the tokens that are at least this many times as likely as the most likely one (Nguyen et al. 2024)."""
    repetition_penalty: float = 1.0
    """Above 1, tokens already in the sequence become less likely (CTRL, Keskar et al. 2019)."""
    presence_penalty: float = 0.0
    """Taken from the logits of tokens that the reply has already, as in OpenAI's API."""
    frequency_penalty: float = 0.0
    """The same, once for each time that the reply has them."""
    max_tokens: int | None = 16
    """Generate at most this many tokens; `None`: until the model's context is full."""
    stop: list[str] = []
    """Generation ends before the first of these strings; the text leaves it out. At most `MAX_STOP_STRINGS`, with
    `MAX_STOP_CHARACTERS` together."""
    stop_token_ids: list[int] = []
    """Generation ends with the first of these tokens, besides the model's own end-of-sequence token."""
    seed: int | None = None
    """The same seed gives the same tokens, whatever else is in the batch."""
    ignore_eos: bool = False
    """Go on after the end-of-sequence token (for measurements)."""
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    """What `LLMEngine.step` returns of the request while it runs; no token depends on it."""

    def __post_init__(self) -> None:
        _settle(self, _MAY_BE_NONE)

    @property
    def greedy(self) -> bool:
        """Whether no random number is drawn."""
        return self.temperature == 0

    @property
    def penalises(self) -> bool:
        """Whether tokens that occurred already become less likely."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0


class SamplingOverrides(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a user set for one chat; everything left `None` follows the model's generation_config.json."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    max_tokens: int | None = None
    stop: list[str] | None = None
    stop_token_ids: list[int] | None = None
    seed: int | None = None
    ignore_eos: bool | None = None

    def __post_init__(self) -> None:
        _settle(self, _ANY, _USERS_CHECKS)

    def resolve(self, defaults: SamplingParams) -> SamplingParams:
        """`defaults` with every value that is set here put in its place."""
        return msgspec.structs.replace(defaults, **self.set_values())

    def set_values(self) -> dict[str, Any]:
        """Only the values that are set."""
        return {k: v for k, v in msgspec.structs.asdict(self).items() if v is not None}


def _check_stops(stops: list[str]) -> list[str]:
    _check_size("stop strings", len(stops), MAX_STOP_STRINGS)
    _check_size("characters of stop strings", sum(map(len, stops)), MAX_STOP_CHARACTERS)
    return stops


def _check_size(what: str, count: int, most: int) -> None:
    if count > most:
        raise InvalidValueError(f"There are {count:,} {what}.", f"One request may have at most {most:,}.")


_CHECKS: dict[str, Callable[[str, object], Any]] = {
    "temperature": Number(0, 1000).check,
    "top_p": Number(0, 1, above=True).check,
    "top_k": Whole(-1, INT32_MAX, "0 or -1 for all tokens").check,
    "min_p": Number(0, 1).check,
    "repetition_penalty": Number(0.01, 100).check,
    "presence_penalty": Number(-2, 2).check,
    "frequency_penalty": Number(-2, 2).check,
    "max_tokens": Whole(1, INT32_MAX).check,
    "stop": lambda name, values: _check_stops(check_texts(name, values)),
    "stop_token_ids": Whole(0, INT32_MAX).check_all,
    "seed": Whole(LEAST_ON_WIRE, MOST_ON_WIRE).check,
    "ignore_eos": check_flag,
}
"""What each value may be: within these the sampler's float32 numbers stay finite and its int32 numbers whole. Which
tokens a model has, the engine knows (`EngineLimits.vocab_size`)."""
_USERS_CHECKS = _CHECKS | {
    "temperature": Number(0, 2).check,
    "repetition_penalty": Number(0.1, 2).check,
}
"""The same for what people set: beyond these no model says anything, and a slip of the finger is told."""
_MAY_BE_NONE = frozenset({"max_tokens", "seed"})
_ANY = frozenset(_CHECKS)
_EMPTY = frozenset({"stop", "stop_token_ids"})
"""Of a request's, those for which `None` means nothing, as for vLLM."""


def _settle(
    params: SamplingParams | SamplingOverrides,
    may_be_none: frozenset[str],
    checks: dict[str, Callable[[str, object], Any]] = _CHECKS,
) -> None:
    """Check every value, and keep numbers of other libraries and a bare stop string as the fields say.

    Raises:
        InvalidValueError: a value outside what it may be.
    """
    for name, check in checks.items():
        given = getattr(params, name)
        if given is None and name in may_be_none:
            continue
        value = [] if given is None and name in _EMPTY else check(name, given)
        if value is not given:
            msgspec.structs.force_setattr(params, name, value)
    kind = getattr(params, "output_kind", RequestOutputKind.CUMULATIVE)
    if not isinstance(kind, RequestOutputKind):
        raise refused("output_kind", kind, "a RequestOutputKind")

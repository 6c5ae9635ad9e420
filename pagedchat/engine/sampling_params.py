"""How the next token is chosen, named as vLLM's users know it."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, ClassVar, Literal, get_args

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
from pagedchat.engine.tokens.rules import (
    MAX_STOP_CHARACTERS,
    check_biases,
    check_size,
    check_tokens,
    check_truncation,
    check_word_ids,
    check_words,
)
from pagedchat.errors import InvalidValueError
from pagedchat.structured.params import StructuredOutputsParams
from pagedchat.vllm_keywords import SAMPLING_KEYWORDS, NoMeaning, TakesOthers

MAX_STOP_STRINGS = 64
"""Of one request, those of a transcript template (two) among them."""
MAX_ANSWERS = 1024
"""To one prompt."""


MAX_LOGPROBS = 20
"""Most likely tokens of which is told beside each token."""


Speculate = Literal["lookup", "model", "off"]
SPECULATE = get_args(Speculate)


class RequestOutputKind(Enum):
    """What the outputs of one request hold, where they are read step by step."""

    CUMULATIVE = 0
    """Everything so far, in each of them."""
    DELTA = 1
    """What came since the output before."""
    FINAL_ONLY = 2
    """Everything, in a single one at the end."""


class SamplingParams(msgspec.Struct, kw_only=True, metaclass=TakesOthers):
    """Settings of one request. The neutral defaults sample from the model's distribution as it is.

    A value may be set later, and is checked then as it is here; requests that were asked for keep what they had.
    """

    _no_meaning: ClassVar[Mapping[str, NoMeaning]] = SAMPLING_KEYWORDS

    n: int = 1
    """Answers to the prompt, which is computed once. By a seed the first one draws, each other by the next seed."""
    best_of: int | None = None
    """Generate so many answers and tell only the likeliest `n` of them, by the sum of their log-probabilities, once
    all are done. `None`: as many as are told."""
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
    logprobs: int | None = None
    """Tell how likely each generated token was, and this many of the most likely ones in its place; by the model
    alone, before penalties, temperature and rules. `None` tells nothing."""
    prompt_logprobs: int | None = None
    """The same of the prompt's tokens, for which its beginning is not taken from the prefix cache."""
    logit_bias: dict[int, float] | None = None
    """Added to the logits of these tokens."""
    allowed_token_ids: list[int] | None = None
    """No other tokens are generated."""
    bad_words: list[str] | None = None
    """Texts that are not generated, where their tokens are those of the text by itself or behind a space."""
    bad_words_ids: list[list[int]] = []
    """Tokens that are never generated one after the other: what `bad_words` come to, and others."""
    min_tokens: int = 0
    """Generation does not end before there are so many tokens: what ends it is ruled out until then, and stop
    strings that are complete by then do not count."""
    include_stop_str_in_output: bool = False
    """Whether the text holds the stop string that ended it, or the text of the token that did."""
    detokenize: bool = True
    """Whether there is a text, besides the tokens."""
    skip_special_tokens: bool = True
    """Whether the text leaves out special tokens."""
    spaces_between_special_tokens: bool = True
    """Without effect: no tokenizer here puts spaces of its own between special tokens."""
    truncate_prompt_tokens: int | None = None
    """Take no more than so many tokens of a prompt, its last ones; -1: as many as leave room for a reply."""
    structured_outputs: StructuredOutputsParams | None = None
    """The form that the reply has to have; it needs the extra `structured`, and a reply that may end."""
    speculate: Speculate | None = None
    """Whether tokens of this reply are guessed and several verified in one step, "lookup", "model" (where there is
    a draft model) or "off"; `None`: as the engine was told. No token depends on it."""
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    """What `LLMEngine.step` returns of the request while it runs; no token depends on it."""

    def __post_init__(self) -> None:
        _settle(self, _MAY_BE_NONE, _ALL_CHECKS)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise refused("min_tokens", self.min_tokens, f"at most max_tokens, which is {self.max_tokens}")
        if self.stop and not self.detokenize:
            raise InvalidValueError(
                "detokenize is False, but there are stop strings.",
                "They are found in the text: leave out one of both.",
            )
        _settle_answers(self)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__struct_fields__:
            raise AttributeError(f"SamplingParams has no {name}.")
        changed = msgspec.structs.replace(self, **{name: value})
        for each in self.__struct_fields__:
            msgspec.structs.force_setattr(self, each, getattr(changed, each))

    @property
    def greedy(self) -> bool:
        """Whether no random number is drawn."""
        return self.temperature == 0

    @property
    def has_rules(self) -> bool:
        """Whether tokens are ruled out, or made more or less likely, by name or by a form."""
        return self.names_tokens or self.structured_outputs is not None

    @property
    def names_tokens(self) -> bool:
        """Whether some are by name."""
        return bool(self.logit_bias or self.allowed_token_ids or self.bad_words_ids or self.min_tokens)

    @property
    def follows_tokens(self) -> bool:
        """Whether these rules change with the tokens that came before, so that somebody has to look at those."""
        return self.structured_outputs is not None or self.has_long_bad_words

    @property
    def has_long_bad_words(self) -> bool:
        """Whether tokens are ruled out by those before them."""
        return any(len(word) > 1 for word in self.bad_words_ids)

    @property
    def named_token_ids(self) -> dict[str, list[int]]:
        """All tokens that its rules name, by the name of the parameter."""
        return {
            "logit_bias": list(self.logit_bias or ()),
            "allowed_token_ids": self.allowed_token_ids or [],
            "bad_words_ids": [token for word in self.bad_words_ids for token in word],
        }

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
    speculate: Speculate | None = None
    logprobs: int | None = None
    """Tell how likely each token of a reply was, and so many others in its place."""

    def __post_init__(self) -> None:
        _settle(self, _ANY, _USERS_CHECKS)

    def resolve(self, defaults: SamplingParams) -> SamplingParams:
        """`defaults` with every value that is set here put in its place."""
        return msgspec.structs.replace(defaults, **self.set_values())

    def set_values(self) -> dict[str, Any]:
        """Only the values that are set."""
        return {k: v for k, v in msgspec.structs.asdict(self).items() if v is not None}


def _check_stops(stops: list[str]) -> list[str]:
    check_size("stop strings", len(stops), MAX_STOP_STRINGS)
    check_size("characters of stop strings", sum(map(len, stops)), MAX_STOP_CHARACTERS)
    return stops


def _check_speculate(name: str, value: object) -> object:
    if value not in SPECULATE:
        raise refused(name, value, f"one of {', '.join(SPECULATE)}")
    return value


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
    "speculate": _check_speculate,
    "logprobs": Whole(0, MAX_LOGPROBS, "or None").check,
}
_CHECKS_OF_REQUESTS: dict[str, Callable[[str, object], Any]] = {
    "prompt_logprobs": Whole(0, MAX_LOGPROBS, "or None").check,
    "logit_bias": check_biases,
    "allowed_token_ids": check_tokens,
    "bad_words": check_words,
    "bad_words_ids": check_word_ids,
    "min_tokens": Whole(0, INT32_MAX).check,
    "include_stop_str_in_output": check_flag,
    "detokenize": check_flag,
    "skip_special_tokens": check_flag,
    "spaces_between_special_tokens": check_flag,
    "truncate_prompt_tokens": check_truncation,
}
"""Of what only a request has, and no setting of a chat."""
"""What each value may be: within these the sampler's float32 numbers stay finite and its int32 numbers whole. Which
tokens a model has, the engine knows (`EngineLimits.vocab_size`)."""
_ALL_CHECKS = _CHECKS | _CHECKS_OF_REQUESTS
_DEFAULTS: dict[str, object] = {
    field.name: field.default if field.default is not msgspec.NODEFAULT else []
    for field in msgspec.structs.fields(SamplingParams)
}
"""None of which needs to be checked."""
_USERS_CHECKS = _CHECKS | {
    "temperature": Number(0, 2).check,
    "repetition_penalty": Number(0.1, 2).check,
}
"""The same for what people set: beyond these no model says anything, and a slip of the finger is told."""
_MAY_BE_NONE = frozenset(
    {
        "max_tokens", "seed", "speculate", "logprobs", "prompt_logprobs", "logit_bias", "allowed_token_ids",
        "bad_words", "truncate_prompt_tokens",
    }
)  # fmt: skip
_ANY = frozenset(_CHECKS)
_EMPTY = frozenset({"stop", "stop_token_ids", "bad_words_ids"})
"""Of a request's, those for which `None` means nothing, as for vLLM."""


def _settle_answers(params: SamplingParams) -> None:
    """Check how many answers are wanted.

    Raises:
        InvalidValueError: too few or too many, or several that could not differ.
    """
    number = Whole(1, MAX_ANSWERS).check("n", params.n)
    if number is not params.n:
        msgspec.structs.force_setattr(params, "n", number)
    name, count = "n", number
    if params.best_of is not None:
        count = Whole(number, MAX_ANSWERS, "not below n").check("best_of", params.best_of)
        msgspec.structs.force_setattr(params, "best_of", count)
        name = "n" if number > 1 else "best_of"
    if count > 1 and params.greedy:
        raise InvalidValueError(
            f"{name} is {getattr(params, name)}, but with temperature 0 all answers are the same.",
            f"Give a temperature, or leave {name} at 1.",
        )


def _settle(
    params: SamplingParams | SamplingOverrides,
    may_be_none: frozenset[str],
    checks: dict[str, Callable[[str, object], Any]],
) -> None:
    """Check every value, and keep numbers of other libraries and a bare stop string as the fields say.

    Raises:
        InvalidValueError: a value outside what it may be.
    """
    for name, check in checks.items():
        given = getattr(params, name)
        if given is None and name in may_be_none:
            continue
        default = _DEFAULTS[name]
        if type(given) is type(default) and given == default:  # most of them, of a request in a hurry
            continue
        value = [] if given is None and name in _EMPTY else check(name, given)
        if value is not given:
            msgspec.structs.force_setattr(params, name, value)
    kind = getattr(params, "output_kind", RequestOutputKind.CUMULATIVE)
    if not isinstance(kind, RequestOutputKind):
        raise refused("output_kind", kind, "a RequestOutputKind")
    form = getattr(params, "structured_outputs", None)
    if form is not None:
        if not isinstance(form, StructuredOutputsParams):
            raise refused("structured_outputs", form, "a StructuredOutputsParams")
        for name in ("ignore_eos", "min_tokens", "allowed_token_ids", "bad_words", "bad_words_ids"):
            if getattr(params, name):
                why = "The form alone says which tokens may come and when the reply ends."
                raise InvalidValueError(f"{name} is given beside structured_outputs.", why)

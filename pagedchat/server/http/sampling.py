"""What a body says of how tokens are chosen -> `SamplingParams`. Bounds are theirs."""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import msgspec

from pagedchat.engine.sampling_params import MAX_LOGPROBS, RequestOutputKind, SamplingParams
from pagedchat.server.http.errors import ApiError
from pagedchat.server.http.schemas.common import ResponseFormat, Sampled, StructuredOutputs
from pagedchat.structured.params import StructuredOutputsParams

_SAME = tuple(
    name
    for name in (
        "n", "best_of", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "frequency_penalty",
        "presence_penalty", "logit_bias", "stop", "stop_token_ids", "seed", "min_tokens", "ignore_eos",
        "include_stop_str_in_output", "skip_special_tokens", "spaces_between_special_tokens", "allowed_token_ids",
        "bad_words", "truncate_prompt_tokens", "speculate",
    )
)  # fmt: skip
"""Names that body and parameters share."""
_values = attrgetter(*_SAME)
_GUIDED = {"guided_json": "json", "guided_regex": "regex", "guided_choice": "choice", "guided_grammar": "grammar"}
"""Older releases of vLLM."""


def sampling_params(body: Sampled, defaults: Mapping[str, Any], **own: Any) -> SamplingParams:
    """The parameters of one request.

    Args:
        body: what its client says.
        defaults: what the model wants where its client says nothing.
        own: what the endpoint says, over both; None says nothing.

    Raises:
        InvalidValueError: a value outside what it may be.
        ApiError: fields that contradict each other.

    Returns:
        Those of another request, too, that said the same: not to be changed.
    """
    values = _values(body)
    said = values, body.stream, body.stream_options, defaults, own
    if said != _last.said or _last.params is None:
        _last.params, _last.said = _params(body, values, defaults, own), said
    return _last.params


@dataclass(slots=True)
class _Last:
    """What the last body said, and what came of it: many that ask at once say the same, and to look at all of it is
    a fifth of what a request takes."""

    said: tuple[Any, ...] = ()
    params: SamplingParams | None = None


_last = _Last()


def _params(
    body: Sampled, values: tuple[Any, ...], defaults: Mapping[str, Any], own: Mapping[str, Any]
) -> SamplingParams:
    """`values`: of `_SAME`."""
    given = {name: value for name, value in zip(_SAME, values, strict=True) if value is not None}
    said = {name: value for name, value in own.items() if value is not None}
    stream = bool(body.stream)
    if stream and body.best_of is not None and body.best_of > (body.n or 1):
        raise ApiError(
            400, "best_of is larger than n, so there is nothing to stream before all is done.", "best_of"
        )
    if body.stream_options is not None and not stream:
        raise ApiError(400, "stream_options are given, but stream is not true.", "stream_options")
    return SamplingParams(
        **{"max_tokens": None, **defaults, **given, **said},
        output_kind=RequestOutputKind.DELTA if stream else RequestOutputKind.FINAL_ONLY,
    )


def form_field(body: Sampled) -> str | None:
    """The field that asks for a form, if any does.

    Raises:
        ApiError: two do.
    """
    asked = [name for name, value in zip(_FORMS, _forms(body), strict=True) if value is not None]
    if not asked:
        return None
    if body.response_format is not None and body.response_format.type == "text":
        asked.remove("response_format")
    if len(asked) > 1:
        raise ApiError(400, f"{' and '.join(asked)} both ask for a form. Give one of them.", asked[0])
    return asked[0] if asked else None


_FORMS = ("response_format", "structured_outputs", *_GUIDED)
_forms = attrgetter(*_FORMS)


def form_of(body: Sampled, name: str) -> StructuredOutputsParams:
    """The form that a field asks for.

    Raises:
        InvalidValueError, ApiError: one that cannot be.
    """
    value = getattr(body, name)
    if isinstance(value, ResponseFormat):
        return _of_format(value)
    if isinstance(value, StructuredOutputs):
        return StructuredOutputsParams(**_structured(value))
    return StructuredOutputsParams(**{_GUIDED[name]: value})


def chat_logprobs(logprobs: bool | None, top_logprobs: int | None) -> int | None:
    """Of a chat: how many of the most likely tokens are told, None for none at all.

    Raises:
        ApiError: too many, or a number of them where none were asked for.
    """
    if top_logprobs is not None and not 0 <= top_logprobs <= MAX_LOGPROBS:
        raise ApiError(
            400,
            f"top_logprobs is {top_logprobs}. It must be from 0 to {MAX_LOGPROBS}.",
            "top_logprobs",
            "invalid_value",
        )
    if not logprobs:
        if top_logprobs:
            raise ApiError(400, "top_logprobs is given, but logprobs is not true.", "top_logprobs")
        return None
    return top_logprobs or 0


def _of_format(wanted: ResponseFormat) -> StructuredOutputsParams:
    if wanted.type == "json_object":
        return StructuredOutputsParams(json_object=True)
    if wanted.json_schema is None:
        raise ApiError(
            400,
            "response_format.json_schema is missing.",
            "response_format.json_schema",
            "missing_required_parameter",
        )
    if wanted.json_schema.schema is None:
        return StructuredOutputsParams(json_object=True)
    return StructuredOutputsParams(json=wanted.json_schema.schema)


def _structured(value: StructuredOutputs) -> dict[str, Any]:
    """Those of vLLM's that have a meaning here; what only tunes another library's work is passed over."""
    known = StructuredOutputsParams.__struct_fields__
    given = {name: each for name, each in msgspec.structs.asdict(value).items() if each is not None}
    if "structural_tag" in given:
        raise ApiError(400, "structured_outputs.structural_tag is not taken.", "structured_outputs.structural_tag")
    return {name: each for name, each in given.items() if name in known}

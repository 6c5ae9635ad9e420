"""What endpoints do alike: is there an engine, which model is meant, how many tokens there were."""

import random
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from starlette.requests import Request

from pagedchat.bounds import shown
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.errors import PagedChatError
from pagedchat.events import EngineReady
from pagedchat.server.http.errors import ApiError, Naming, from_engine, not_ready
from pagedchat.server.http.sampling import form_field, form_of, sampling_params
from pagedchat.server.http.schemas.common import CompletionTokensDetails, PromptTokensDetails, Sampled, Usage
from pagedchat.server.served import Served
from pagedchat.structured.params import StructuredOutputsParams

if TYPE_CHECKING:
    from pagedchat.outputs import CompletionOutput, RequestOutput


def served_by(request: Request) -> Served:
    """What the app was made for."""
    value: Served = request.app.state.served
    return value


def ready(request: Request) -> Served:
    """The same, where there is an engine.

    Raises:
        ApiError: there is none just now.
    """
    value = served_by(request)
    if value.state.trouble:
        raise not_ready(value.state.trouble)
    return value


def check_model(value: Served, asked: str | None) -> EngineReady:
    """The engine's account of itself, if its model is the one that was asked for.

    Raises:
        ApiError: another one is served.
    """
    if asked is not None and asked not in value.names:
        raise ApiError(
            404, f"The model {shown(asked)} is not served here. This server has one model at a time: "
            f"{shown(value.name)}.", "model", "model_not_found",
        )  # fmt: skip
    return value.info


def parameters(
    body: Sampled, served: Served, naming: Naming, form: StructuredOutputsParams | None = None, **own: Any
) -> tuple[SamplingParams, Naming]:
    """How tokens are chosen, and how errors of the engine name what this body has.

    Args:
        body: of the request.
        served: what holds where the body says nothing.
        naming: of the endpoint.
        form: of the reply, where the endpoint asks for one; then the body may not.
        own: what the endpoint says over both.

    Raises:
        ApiError: a value outside what it may be.
    """
    field = form_field(body)
    if field is not None and form is not None:
        raise ApiError(400, f"{field} asks for a form, and tool_choice for another.", field)
    if field is not None or form is not None:
        asked_by = naming.renamed.get(field, field) if field is not None else "tools"
        naming = replace(naming, renamed={"structured_outputs": asked_by, **naming.renamed})
    try:
        if field is not None:
            form = form_of(body, field)
        return sampling_params(body, served.sampling_defaults, structured_outputs=form, **own), naming
    except PagedChatError as error:
        raise from_engine(error, naming) from None


_numbers = random.Random(secrets.randbits(128))  # noqa: S311 - they are names, not secrets


def new_id(prefix: str) -> str:
    """Of an answer."""
    return f"{prefix}-{_numbers.getrandbits(96):024x}"


def now() -> int:
    """Seconds, as answers tell when they were made."""
    return int(time.time())


class Tally:
    """How many tokens there were, of the outputs of one answer as they come."""

    def __init__(self) -> None:
        self._prompts: dict[int, list[int]] = {}
        self._num_cached: dict[int, int] = {}
        self.num_tokens = 0
        """Of all replies."""

    def add(self, place: int, output: "RequestOutput") -> None:
        """The next output, of the prompt in this place."""
        if output.prompt_token_ids:
            self._prompts[place] = output.prompt_token_ids
        self._num_cached[place] = output.num_cached_tokens
        for reply in output.outputs:
            self.num_tokens += len(reply.token_ids)

    def prompt(self, place: int) -> list[int]:
        """The tokens of a prompt."""
        return self._prompts.get(place, [])

    def usage(self, num_thought_tokens: int | None = None) -> Usage:
        """As it is told."""
        num_prompt = sum(map(len, self._prompts.values()))
        thoughts = (
            None if num_thought_tokens is None else CompletionTokensDetails(reasoning_tokens=num_thought_tokens)
        )
        return Usage(
            prompt_tokens=num_prompt,
            completion_tokens=self.num_tokens,
            total_tokens=num_prompt + self.num_tokens,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=sum(self._num_cached.values())),
            completion_tokens_details=thoughts,
        )


def check_reply(output: "CompletionOutput") -> Literal["stop", "length"] | None:
    """How a reply ended, if it did.

    Raises:
        ApiError: by an error of ours, or because somebody else ended it.
    """
    reason = output.finish_reason
    if reason == "error":
        raise ApiError(500, "This reply ended by an error of pagedchat's own; the server's log has it.")
    if reason == "abort":
        raise ApiError(500, "This reply was ended on the server.", code="aborted")
    return reason

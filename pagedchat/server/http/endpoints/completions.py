"""`POST /v1/completions`: prompts, as text or tokens, gone on with."""

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.server.http.answering import GeneratedAnswer, stream, whole
from pagedchat.server.http.endpoints.common import Tally, check_model, check_reply, new_id, now, parameters, ready
from pagedchat.server.http.errors import ApiError
from pagedchat.server.http.logprobs import TextLogprobsTeller
from pagedchat.server.http.merging import merged
from pagedchat.server.http.messages import check_entries, check_length
from pagedchat.server.http.reading import BodyReader
from pagedchat.server.http.schemas.common import Usage
from pagedchat.server.http.schemas.completions import Completion, CompletionBody, CompletionChoice, TextLogprobs
from pagedchat.server.http.streaming import DONE, event
from pagedchat.server.http.without_effect import check_no_effect
from pagedchat.server.served import Served

if TYPE_CHECKING:
    from pagedchat.outputs import CompletionOutput, PositionLogprobs, RequestOutput

MAX_PROMPTS = 1024
"""Of one body."""
_DEFAULT_TOKENS = 16
_READER = BodyReader(CompletionBody, "prompt", {"prompt_logprobs": "logprobs"})
_encode = msgspec.json.Encoder().encode


async def completions(request: Request) -> Response:
    """Answer one body."""
    served = ready(request)
    body = await _READER.read(request, served.max_body)
    info = check_model(served, body.model)
    check_no_effect(body, frozenset({"prompt"}))
    prompts = prompts_of(body, info.max_model_len)
    params, naming = parameters(
        body, served, _READER.naming, max_tokens=_max_tokens(body, served.sampling_defaults),
        logprobs=body.logprobs, prompt_logprobs=body.logprobs if body.echo else None,
    )  # fmt: skip
    answer = _Answer(served, body, params, prompts)
    work = stream(answer.frames) if body.stream else whole(answer.whole)
    return GeneratedAnswer(served.admission, len(prompts) * (params.best_of or params.n), work, naming)


def prompts_of(body: CompletionBody, max_model_len: int) -> list[str | list[int]]:
    """All prompts of a body.

    Raises:
        ApiError: none, too many, a mixture, or one that is too long for any context.
    """
    given: Sequence[Any] = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    kinds = {type(each) for each in given}
    if kinds == {int}:
        given, kinds = [given], {list}
    if len(kinds) != 1:
        what = "is empty" if not kinds else "has entries of several kinds"
        raise ApiError(
            400, f"prompt {what}. Give a text, its tokens, or a list of either.", "prompt", "invalid_value"
        )
    if len(given) > MAX_PROMPTS:
        raise ApiError(400, f"prompt has {len(given):,} entries. At most {MAX_PROMPTS:,} can be.", "prompt")
    for prompt in given:
        if isinstance(prompt, str):
            check_length(len(prompt), max_model_len, "prompt")
        else:
            check_entries(len(prompt), max_model_len, "prompt")
    return list(given)


def _max_tokens(body: CompletionBody, defaults: dict[str, Any]) -> int | None:
    if body.max_tokens is None:
        return None if defaults.get("max_tokens") else _DEFAULT_TOKENS
    if body.max_tokens == 0 and body.echo:
        return 1  # the engine has no steps without one; it is not told
    return body.max_tokens


class _Answer:
    """One body on its way to an answer."""

    def __init__(
        self, served: Served, body: CompletionBody, params: SamplingParams, prompts: list[str | list[int]]
    ) -> None:
        self._served = served
        self._body = body
        self._params = params
        self._prompts = prompts
        self._id, self._created = new_id("cmpl"), now()
        self._tally = Tally()
        self._tellers: dict[int, TextLogprobsTeller] = {}
        """By choice."""
        self._echoed: dict[int, str] = {}
        """Texts of prompts, by place, until they are told."""
        self._first_token: dict[int, str] = {}

    async def whole(self) -> bytes:
        """Everything at once."""
        choices: list[CompletionChoice] = []
        async for place, output in self._outputs():
            choices += [self._choice(place, output, reply) for reply in output.outputs]
        choices.sort(key=lambda choice: choice.index)
        return _encode(self._told(choices, self._usage()))

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """Piece by piece."""
        options = self._body.stream_options
        has_usage = options is not None and bool(options.include_usage)
        always = has_usage and options is not None and bool(options.continuous_usage_stats)
        num_left = len(self._prompts)
        async for place, output in self._outputs():
            frames = b""
            for reply in output.outputs:
                choice = self._choice(place, output, reply)
                if choice.text or choice.finish_reason or choice.logprobs or choice.token_ids:
                    told = self._usage() if always else None if has_usage else msgspec.UNSET
                    frames += event(self._told([choice], told))
            num_left -= output.finished
            if not num_left:
                frames += event(self._told([], self._usage())) + DONE if has_usage else DONE
            if frames:
                yield frames

    async def _outputs(self) -> AsyncGenerator[tuple[int, "RequestOutput"], None]:
        if self._body.echo:
            await self._prepare_echo()
        prompts = [await self._prompt(prompt) for prompt in self._prompts]
        sources = [self._served.engine.generate(prompt, self._params) for prompt in prompts]
        async for place, output in merged(sources):
            self._tally.add(place, output)
            if self._body.echo and self._body.logprobs is not None and place not in self._first_token:
                self._first_token[place] = await self._served.engine.detokenize(self._tally.prompt(place)[:1])
            yield place, output

    async def _prompt(self, prompt: str | list[int]) -> dict[str, Any]:
        if isinstance(prompt, str) and self._body.add_special_tokens is False:
            prompt = await self._served.engine.tokenize(prompt, add_special_tokens=False)
        return {"prompt": prompt} if isinstance(prompt, str) else {"prompt_token_ids": prompt}

    async def _prepare_echo(self) -> None:
        for place, prompt in enumerate(self._prompts):
            text = prompt if isinstance(prompt, str) else await self._served.engine.detokenize(prompt)
            self._echoed[place] = text

    def _told(self, choices: list[CompletionChoice], usage: Usage | msgspec.UnsetType | None) -> Completion:
        return Completion(
            id=self._id, created=self._created, model=self._served.name, choices=choices, usage=usage
        )  # fmt: skip

    def _usage(self) -> Usage:
        return self._tally.usage()

    def _choice(self, place: int, output: "RequestOutput", reply: "CompletionOutput") -> CompletionChoice:
        reason = check_reply(reply)
        index = place * self._params.n + reply.index
        is_first = index not in self._tellers
        if is_first:
            self._tellers[index] = TextLogprobsTeller(self._body.logprobs or 0)
        text, logprobs = reply.text, self._logprobs(index, output, reply, is_first)
        if self._body.max_tokens == 0:
            text = ""
        if is_first and self._body.echo:
            text = self._echoed[place] + text
        ids = self._body.return_token_ids
        return CompletionChoice(
            index=index,
            text=text,
            logprobs=logprobs,
            finish_reason=reason,
            stop_reason=reply.stop_reason,
            token_ids=reply.token_ids if ids else msgspec.UNSET,
            prompt_token_ids=self._tally.prompt(place) if ids and is_first else msgspec.UNSET,
        )

    def _logprobs(
        self, index: int, output: "RequestOutput", reply: "CompletionOutput", is_first: bool
    ) -> TextLogprobs | None:
        if self._body.logprobs is None:
            return None
        token_ids = list(reply.token_ids)
        positions: list[PositionLogprobs | None] = list(reply.logprobs or [])
        if self._body.max_tokens == 0:
            token_ids, positions = [], []
        if is_first and self._body.echo:
            token_ids = [*output.prompt_token_ids, *token_ids]
            positions = [*(output.prompt_logprobs or []), *positions]
        return self._tellers[index].tell(token_ids, positions, self._first_token.get(index // self._params.n, ""))
